"""Git, the program: run in a hardened environment, on remotes and on the cache's databases."""
