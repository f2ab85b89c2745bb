"""The tests; `tests/x/test_y.py` is for `x/y.py`."""
