"""Run the use of a package: use.py NAME.  The uses bear names of packages: their folder must not be on sys.path."""

import runpy
import sys
from pathlib import Path

script = Path(__file__).parent / "uses" / f"{sys.argv[1]}.py"
sys.argv[:] = [str(script)]
runpy.run_path(str(script), run_name="__main__")
