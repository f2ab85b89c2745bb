"""torch.utils.tensorboard: `SummaryWriter`, which writes event files by the package `tensorboard`.

Protobufs and files are that package's; importing this one without it raises ImportError, as in torch.
https://docs.pytorch.org/docs/2.13/tensorboard.html
"""

try:
    import tensorboard  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"torch.utils.tensorboard needs the package tensorboard ({error})\nhint: pip install tensorboard pillow"
    ) from error

from tensorboard.summary.writer.record_writer import RecordWriter

from engine.utils.tensorboard.writer import FileWriter, SummaryWriter

__all__ = ["FileWriter", "RecordWriter", "SummaryWriter"]
