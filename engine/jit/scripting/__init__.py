"""Python functions and modules compiled, or recorded, to the text of an archive."""
