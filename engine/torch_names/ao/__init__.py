"""torch.ao's names: quantization's place-holders."""
