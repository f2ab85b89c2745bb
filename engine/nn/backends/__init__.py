"""Kept for old pickles that name torch.nn.backends."""
