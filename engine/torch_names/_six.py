"""torch._six's names, which packages from before 2023 import."""

import builtins
import collections.abc as container_abcs
from math import inf, nan

__all__ = ["PY3", "PY37", "container_abcs", "inf", "int_classes", "nan", "string_classes"]

string_classes = (str, bytes)
int_classes = int
PY3 = PY37 = True
FileNotFoundError = builtins.FileNotFoundError
