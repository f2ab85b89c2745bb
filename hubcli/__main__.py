"""`python -m hubcli`: the same as `hub`."""

import os
import sys

# Python puts the working folder first: nothing that lies there may stand in for what hub imports
if not sys.flags.safe_path and sys.path[:1] in ([""], [os.getcwd()]):
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if os.path.realpath(here) != os.path.realpath(os.getcwd()):
        del sys.path[0]

from hubcli.cli import main

if __name__ == "__main__":
    main()
