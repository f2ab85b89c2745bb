"""Facts about a repository that reading alone gives: entrypoints, signatures, dependencies.

Nothing here imports or executes a line of the code it reads.
"""
