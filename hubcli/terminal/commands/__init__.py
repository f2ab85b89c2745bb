"""One command per file: parse options, call the core, print.

`cli.COMMANDS` names them; nothing here is imported before its command runs.
"""
