"""Cases run under torch once (`record.py`) and under the engine in tests: `cases(T, nn, F, r)` yields (name, call).

`T` is the framework, `r` draws the same random tensors in both (`record.Maker`).  A case returns values, or
(values, leaves) to compare the gradients of the leaves as well.
"""
