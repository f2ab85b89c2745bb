"""torch.fx.experimental's names that packages ask with: nothing is ever traced."""
