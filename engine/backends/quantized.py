"""torch.backends.quantized's names: quantized tensors are not supported."""

engine = "none"
supported_engines = ["none"]
