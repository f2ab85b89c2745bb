"""The core of one command per file: what it does, without options and printing."""
