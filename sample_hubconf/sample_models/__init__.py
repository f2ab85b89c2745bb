"""The networks behind hubconf.py.  Plain torch code: it runs on PyTorch and on the engine of `hub`."""
