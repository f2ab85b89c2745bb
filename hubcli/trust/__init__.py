"""Whose code may run: the records of consent, the prompt, the signatures of tags, and the gates."""
