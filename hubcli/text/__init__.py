"""Text from a weights file alone: decoder-only transformers of known architectures, their tokenizers, generation.

Such a file (GGUF, or safetensors with config.json and tokenizer.json beside it) holds no code, so nothing asks for
consent; everything in it is read as data."""
