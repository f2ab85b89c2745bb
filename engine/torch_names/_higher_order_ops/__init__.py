"""torch._higher_order_ops: functions of functions, run as they are."""

from engine.torch_names._higher_order_ops.associative_scan import associative_scan

__all__ = ["associative_scan"]
