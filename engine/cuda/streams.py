"""torch.cuda.streams' names."""

from engine.cuda import Event, Stream

__all__ = ["Event", "Stream"]
