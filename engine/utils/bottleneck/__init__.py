"""torch.utils.bottleneck: `python -m engine.utils.bottleneck SCRIPT [ARGUMENTS]` summarises where a script's time goes.

https://docs.pytorch.org/docs/1.1.0/bottleneck.html
"""
