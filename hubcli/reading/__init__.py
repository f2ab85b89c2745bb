"""What can be known of a repository by reading it: entrypoints, signatures, dependencies.

Nothing here imports or executes a line of the code it reads.
"""
