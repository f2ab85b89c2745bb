"""torch.ao.nn.quantized.dynamic: the modules of `engine.nn.quantized.dynamic`."""

from engine.nn.quantized.dynamic import GRU, LSTM, GRUCell, Linear, LSTMCell, RNNCell

__all__ = ["GRU", "LSTM", "GRUCell", "LSTMCell", "Linear", "RNNCell"]
