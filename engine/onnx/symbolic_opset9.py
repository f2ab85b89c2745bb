"""torch.onnx.symbolic_opset9: named at import by what registers symbolic functions; each raises when called."""

from engine.onnx._refused import refusing

__getattr__ = refusing("symbolic_opset9")
