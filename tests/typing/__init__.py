"""Code that is read by pyright and mypy (`make types`) and never run."""
