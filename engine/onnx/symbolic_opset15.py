"""torch.onnx.symbolic_opset15: named at import by what registers symbolic functions; each raises when called."""

from engine.onnx._refused import refusing

__getattr__ = refusing("symbolic_opset15")
