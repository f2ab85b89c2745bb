"""What lies on disk: checkouts, refs, weights, what was first seen, and who is using what.

Nothing here executes repository code; nothing already on disk is trusted for being there.
"""
