"""Import the modules named in a file, one after another; a line of JSON about each: name, exception, its message.

Run by scripts/packages.py under the alias: walk.py NAMES ANSWERS.
"""

import importlib
import json
import sys
import warnings

warnings.simplefilter("ignore")
names, answers = sys.argv[1:]
sys.argv[1:] = []  # some modules parse the command line as they are imported
with open(names) as listed, open(answers, "w") as out:
    for name in listed.read().split():
        error = text = ""
        try:
            importlib.import_module(name)
        except BaseException as caught:  # SystemExit too: a script that ends at import
            error, text = type(caught).__name__, " ".join(str(caught).split())[:200] or "no message"
        out.write(json.dumps([name, error, text]) + "\n")
        out.flush()
