"""Benchmarks: each prints ratios against peers that are measured in the same run; `python -m benchmarks` runs them all.

None is a test: times depend on the machine.  Results with the processor and commit they were taken at: `results/`.
"""
