"""Nested tensors of the jagged layout: the class, its ragged size, and what each function does with it."""
