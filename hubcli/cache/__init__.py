"""The cache folder: checkouts, refs, weights, first-seen records, leases.  See README.md.

Nothing here executes repository code; nothing already on disk is trusted for being there.
"""
