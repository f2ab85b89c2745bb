"""torch.ao.nn.quantized.modules."""
