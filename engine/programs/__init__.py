"""Calls of modules and training steps, recorded as programs and replayed: README.md.  Nothing is imported here."""
