"""oneDNN's kernels of ops, in front of their own for large float32 arrays; imported when the library is there.

A kernel here returns NotImplemented for what oneDNN lacks or does more slowly, and its twin in the op's own file answers.
"""
