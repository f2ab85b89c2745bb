"""torch.ao.nn.quantized.dynamic.modules.rnn."""

from engine.nn.quantized.dynamic import GRU, LSTM, GRUCell, LSTMCell, PackedParameter, RNNCell

__all__ = ["GRU", "LSTM", "GRUCell", "LSTMCell", "PackedParameter", "RNNCell"]
