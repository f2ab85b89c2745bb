"""The command line: options, commands, messages, exit statuses."""
