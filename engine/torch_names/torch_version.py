"""torch.torch_version's names."""

from engine.core.version import TorchVersion, __version__

__all__ = ["TorchVersion", "__version__"]
