"""`python -m hubcli`: the same as `hub`."""

import os
import sys

# Python puts the working folder first: nothing that is there may stand in for what hub imports
try:
    cwd = os.getcwd()
except OSError:  # it was removed: nothing is there
    cwd = ""
if not sys.flags.safe_path and sys.path[:1] in ([""], [cwd]):
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if not cwd or os.path.realpath(here) != os.path.realpath(cwd):
        del sys.path[0]

from hubcli.terminal.cli import main

if __name__ == "__main__":
    main()
