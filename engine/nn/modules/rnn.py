"""RNN, LSTM, GRU and their cells."""

from __future__ import annotations

import math
import numbers
import warnings
import weakref
from typing import Any

from engine.nn import init
from engine.nn.modules.module import Module
from engine.nn.parameter import Parameter
from engine.nn.utils.rnn import PackedSequence
from engine.ops import functions as torch
from engine.tensor import Tensor

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNBase", "RNNCell", "RNNCellBase"]

_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


def _apply_permutation(tensor: Tensor, permutation: Tensor, dim: int = 1) -> Tensor:
    return tensor.index_select(dim, permutation)


def apply_permutation(tensor: Tensor, permutation: Tensor, dim: int = 1) -> Tensor:
    """Deprecated: `tensor.index_select(dim, permutation)`."""
    warnings.warn(
        "`apply_permutation` is deprecated, please use `tensor.index_select(dim, permutation)` instead",
        FutureWarning,
        stacklevel=2,
    )
    return _apply_permutation(tensor, permutation, dim)


class RNNBase(Module):
    """The base of RNN, LSTM and GRU: weights `weight_ih_l0`, `weight_hh_l0`, `bias_ih_l0`, ... `_reverse`."""

    __constants__ = [
        "mode",
        "input_size",
        "hidden_size",
        "num_layers",
        "bias",
        "batch_first",
        "dropout",
        "bidirectional",
        "proj_size",
    ]
    __jit_unused_properties__ = ["all_weights"]

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        self._flat_weight_refs: list[Any] = []
        self._check_arguments(dropout)
        if mode not in _GATES:
            raise ValueError("Unrecognized RNN mode: " + mode)
        gate_size = _GATES[mode] * hidden_size
        self._flat_weights_names: list[str] = []
        self._all_weights: list[list[str]] = []
        directions = 2 if bidirectional else 1
        real = proj_size if proj_size > 0 else hidden_size
        for layer in range(num_layers):
            for direction in range(directions):
                inner = input_size if layer == 0 else real * directions
                sizes = {"weight_ih": (gate_size, inner), "weight_hh": (gate_size, real)}
                if bias:
                    sizes |= {"bias_ih": (gate_size,), "bias_hh": (gate_size,)}
                if proj_size > 0:
                    sizes["weight_hr"] = (proj_size, hidden_size)
                suffix = "_reverse" if direction == 1 else ""
                names = []
                for name, size in sizes.items():
                    names.append(f"{name}_l{layer}{suffix}")
                    setattr(self, names[-1], Parameter(torch.empty(size, device=device, dtype=dtype)))
                self._flat_weights_names.extend(names)
                self._all_weights.append(names)
        self._init_flat_weights()
        self.reset_parameters()

    def _check_arguments(self, dropout: Any) -> None:
        if not isinstance(dropout, numbers.Number) or not 0 <= dropout <= 1 or isinstance(dropout, bool):
            raise ValueError(
                "dropout should be a number in range [0, 1] representing the probability of an element being zeroed"
            )
        if dropout > 0 and self.num_layers == 1:
            warnings.warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects "
                f"num_layers greater than 1, but got dropout={dropout} and num_layers={self.num_layers}",
                stacklevel=4,
            )
        for name in ("bias", "batch_first"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} should be of type bool, got: {type(getattr(self, name)).__name__}")
        for name in ("input_size", "hidden_size"):
            value = getattr(self, name)
            if not isinstance(value, int):
                raise TypeError(f"{name} should be of type int, got: {type(value).__name__}")
            if value <= 0:
                raise ValueError(f"{name} must be greater than zero")
        if self.num_layers <= 0:
            raise ValueError("num_layers must be greater than zero")
        if self.proj_size < 0:
            raise ValueError("proj_size should be a positive integer or zero to disable projections")
        if self.proj_size >= self.hidden_size:
            raise ValueError("proj_size has to be smaller than hidden_size")

    def _init_flat_weights(self) -> None:
        self._flat_weights = [getattr(self, name, None) for name in self._flat_weights_names]
        self._flat_weight_refs = [None if w is None else weakref.ref(w) for w in self._flat_weights]
        self.flatten_parameters()

    def __setattr__(self, name: str, value: Any) -> None:
        names = self.__dict__.get("_flat_weights_names")
        if names and name in names and "_flat_weights" in self.__dict__:
            self._flat_weights[names.index(name)] = value
        super().__setattr__(name, value)

    def flatten_parameters(self) -> None:
        """Nothing: the weights need no single block of memory here."""

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        self._flat_weight_refs = []
        result = super()._apply(fn, recurse)
        self._init_flat_weights()
        return result

    def reset_parameters(self) -> None:
        """Draw all weights anew, uniform in +-1/sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def check_input(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        """Raise unless dtype and sizes of the input fit."""
        dtype = self._flat_weights[0].dtype
        if input.dtype != dtype:
            raise ValueError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({dtype}). Convert input: "
                f"input.to({dtype}), or convert model: model.to({input.dtype})"
            )
        wanted = 2 if batch_sizes is not None else 3
        if input.dim() != wanted:
            raise RuntimeError(f"input must have {wanted} dimensions, got {input.dim()}")
        if self.input_size != input.size(-1):
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {input.size(-1)}"
            )

    def _states(self, input: Tensor, batch_sizes: Tensor | None, size: int) -> tuple[int, int, int]:
        if batch_sizes is not None:
            batch = int(batch_sizes[0])
        else:
            batch = input.size(0) if self.batch_first else input.size(1)
        return self.num_layers * (2 if self.bidirectional else 1), batch, size

    def get_expected_hidden_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int, int]:
        """The shape of the hidden state: (layers * directions, N, H)."""
        return self._states(input, batch_sizes, self.proj_size if self.proj_size > 0 else self.hidden_size)

    def check_hidden_size(
        self, hx: Tensor, expected_hidden_size: tuple, msg: str = "Expected hidden size {}, got {}"
    ) -> None:
        """RuntimeError unless a state has the expected shape."""
        if hx.size() != expected_hidden_size:
            raise RuntimeError(msg.format(expected_hidden_size, list(hx.size())))

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        """Raise unless input and state fit."""
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden, self.get_expected_hidden_size(input, batch_sizes))

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        """The state's sequences in another order."""
        return hx if permutation is None else _apply_permutation(hx, permutation)

    def _weights_have_changed(self) -> bool:
        for ref, name in zip(self._flat_weight_refs, self._flat_weights_names):
            weight = getattr(self, name, None)
            if weight is not None and ref is not None and ref() is not weight:
                return True
        return False

    def _update_flat_weights(self) -> None:
        if self._weights_have_changed():
            self._init_flat_weights()

    def extra_repr(self) -> str:
        s = f"{self.input_size}, {self.hidden_size}"
        if self.proj_size != 0:
            s += f", proj_size={self.proj_size}"
        if self.num_layers != 1:
            s += f", num_layers={self.num_layers}"
        if self.bias is not True:
            s += f", bias={self.bias}"
        if self.batch_first is not False:
            s += f", batch_first={self.batch_first}"
        if self.dropout != 0:
            s += f", dropout={self.dropout}"
        if self.bidirectional is not False:
            s += f", bidirectional={self.bidirectional}"
        return s

    def __getstate__(self) -> dict:
        self._update_flat_weights()
        state = self.__dict__.copy()
        del state["_flat_weight_refs"]
        return state

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        own = self.__dict__
        if "all_weights" in state:
            own["_all_weights"] = own.pop("all_weights")
        own.setdefault("proj_size", 0)
        if not isinstance(self._all_weights[0][0], str):  # very old pickles hold the tensors themselves
            own["_all_weights"] = []
            for layer in range(self.num_layers):
                for suffix in ("", "_reverse") if self.bidirectional else ("",):
                    kinds = [
                        "weight_ih",
                        "weight_hh",
                        *(["bias_ih", "bias_hh"] if self.bias else []),
                    ]
                    kinds += ["weight_hr"] if self.proj_size > 0 else []
                    self._all_weights.append([f"{kind}_l{layer}{suffix}" for kind in kinds])
        own["_flat_weights_names"] = [name for names in self._all_weights for name in names]
        own["_flat_weights"] = [getattr(self, name, None) for name in self._flat_weights_names]
        own["_flat_weight_refs"] = [None if w is None else weakref.ref(w) for w in self._flat_weights]

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The weights of each layer and direction."""
        return [[getattr(self, weight) for weight in weights] for weights in self._all_weights]

    def _replicate_for_data_parallel(self) -> Any:
        replica = super()._replicate_for_data_parallel()
        replica._flat_weights = replica._flat_weights[:]
        replica._flat_weights_names = replica._flat_weights_names[:]
        return replica

    # --- what forward shares

    _function: str

    def _zeros(self, input: Tensor, batch: int, size: int) -> Tensor:
        count = self.num_layers * (2 if self.bidirectional else 1)
        return torch.zeros(count, batch, size, dtype=input.dtype, device=input.device)

    def _initial(self, input: Tensor, batch: int) -> Any:
        return self._zeros(input, batch, self.hidden_size)

    def _check_dims(self, hx: Any, batched: bool) -> Any:
        """The given state with a batch dim."""
        if batched:
            if hx.dim() != 3:
                raise RuntimeError(f"For batched 3-D input, hx should also be 3-D but got {hx.dim()}-D tensor")
            return hx
        if hx.dim() != 2:
            raise RuntimeError(f"For unbatched 2-D input, hx should also be 2-D but got {hx.dim()}-D tensor")
        return hx.unsqueeze(1)

    def _wrong_dims(self, ndim: int) -> Exception:
        return ValueError(f"{type(self).__name__}: Expected input to be 2D or 3D, got {ndim}D instead")

    def _final(self, states: Any, squeeze: bool, permutation: Tensor | None) -> Any:
        hidden = states[0].squeeze(1) if squeeze else states[0]
        return self.permute_hidden(hidden, permutation)

    def forward(self, input: Any, hx: Any = None) -> Any:
        """The output of the last layer for each step, and the final state."""
        self._update_flat_weights()
        function = getattr(torch, self._function)
        rest = (
            self._flat_weights,
            self.bias,
            self.num_layers,
            self.dropout,
            self.training,
            self.bidirectional,
        )
        if isinstance(input, PackedSequence):
            data, batch_sizes, sorted_indices, unsorted_indices = input
            if hx is None:
                hx = self._initial(data, int(batch_sizes[0]))
            else:
                hx = self.permute_hidden(hx, sorted_indices)
            self.check_forward_args(data, hx, batch_sizes)
            output, *states = function(data, batch_sizes, hx, *rest)
            packed = PackedSequence(output, batch_sizes, sorted_indices, unsorted_indices)
            return packed, self._final(states, False, unsorted_indices)
        if input.dim() not in (2, 3):
            raise self._wrong_dims(input.dim())
        batched = input.dim() == 3
        batch_dim = 0 if self.batch_first else 1
        if not batched:
            input = input.unsqueeze(batch_dim)
        hx = self._initial(input, input.size(batch_dim)) if hx is None else self._check_dims(hx, batched)
        self.check_forward_args(input, hx, None)
        output, *states = function(input, hx, *rest, self.batch_first)
        return output if batched else output.squeeze(batch_dim), self._final(states, not batched, None)


class RNN(RNNBase):
    """h' = tanh (or relu) of x W_ih + b_ih + h W_hh + b_hh.  input (T, N, F), hx (D L, N, H) -> (T, N, D H), hx."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        if len(args) > 3:
            self.__dict__["nonlinearity"] = args[3]
            args = args[:3] + args[4:]
        else:
            self.__dict__["nonlinearity"] = kwargs.pop("nonlinearity", "tanh")
        modes = {"tanh": "RNN_TANH", "relu": "RNN_RELU"}
        if self.nonlinearity not in modes:
            raise ValueError(f"Unknown nonlinearity '{self.nonlinearity}'. Select from 'tanh' or 'relu'.")
        super().__init__(modes[self.nonlinearity], *args, **kwargs)

    @property
    def _function(self) -> str:  # type: ignore[override]
        return "rnn_tanh" if self.mode == "RNN_TANH" else "rnn_relu"


class GRU(RNNBase):
    """Gated recurrent units (arXiv:1406.1078).  input (T, N, F), hx (D L, N, H) -> (T, N, D H), (D L, N, H)."""

    _function = "gru"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        super().__init__("GRU", *args, **kwargs)


class LSTM(RNNBase):
    """Long short-term memory, proj_size by arXiv:1402.1128.  input (T, N, F), hx = h, c -> (T, N, D P), (h, c).

    h (D L, N, P), c (D L, N, H), P = proj_size or H.
    """

    _function = "lstm"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)

    def get_expected_cell_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int, int]:
        """The shape of the cell state: (layers * directions, N, H)."""
        return self._states(input, batch_sizes, self.hidden_size)

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        self.check_input(input, batch_sizes)
        self.check_hidden_size(
            hidden[0],
            self.get_expected_hidden_size(input, batch_sizes),
            "Expected hidden[0] size {}, got {}",
        )
        self.check_hidden_size(
            hidden[1],
            self.get_expected_cell_size(input, batch_sizes),
            "Expected hidden[1] size {}, got {}",
        )

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        if permutation is None:
            return hx
        return _apply_permutation(hx[0], permutation), _apply_permutation(hx[1], permutation)

    def _initial(self, input: Tensor, batch: int) -> Any:
        real = self.proj_size if self.proj_size > 0 else self.hidden_size
        return self._zeros(input, batch, real), self._zeros(input, batch, self.hidden_size)

    def _check_dims(self, hx: Any, batched: bool) -> Any:
        n = 3 if batched else 2
        if hx[0].dim() != n or hx[1].dim() != n:
            kind = "batched" if batched else "unbatched"
            raise RuntimeError(
                f"For {kind} {n}-D input, hx and cx should also be {n}-D but got ({hx[0].dim()}-D, {hx[1].dim()}-D) "
                "tensors"
            )
        return hx if batched else (hx[0].unsqueeze(1), hx[1].unsqueeze(1))

    def _final(self, states: Any, squeeze: bool, permutation: Tensor | None) -> Any:
        h, c = (s.squeeze(1) if squeeze else s for s in states)
        return self.permute_hidden((h, c), permutation)


class RNNCellBase(Module):
    """The base of the cells: weight_ih, weight_hh, bias_ih, bias_hh."""

    __constants__ = ["input_size", "hidden_size", "bias"]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        gates = num_chunks * hidden_size
        sizes = {"weight_ih": (gates, input_size), "weight_hh": (gates, hidden_size)}
        for name, size in sizes.items():
            setattr(self, name, Parameter(torch.empty(size, device=device, dtype=dtype)))
        for name in ("bias_ih", "bias_hh"):
            if bias:
                setattr(self, name, Parameter(torch.empty(gates, device=device, dtype=dtype)))
            else:
                self.register_parameter(name, None)
        self.reset_parameters()

    def extra_repr(self) -> str:
        s = f"{self.input_size}, {self.hidden_size}"
        if self.__dict__.get("bias", True) is not True:
            s += f", bias={self.bias}"
        if self.__dict__.get("nonlinearity", "tanh") != "tanh":
            s += f", nonlinearity={self.nonlinearity}"
        return s

    def reset_parameters(self) -> None:
        """Draw all weights anew, uniform in +-1/sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def _check(self, input: Tensor, label: str) -> None:
        if input.dim() not in (1, 2):
            raise ValueError(f"{type(self).__name__}: Expected {label} to be 1D or 2D, got {input.dim()}D instead")

    def _zeros(self, input: Tensor) -> Tensor:
        return torch.zeros(input.size(0), self.hidden_size, dtype=input.dtype, device=input.device)

    def _weights(self) -> tuple:
        return self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh

    def _step(self, function: Any, input: Tensor, hx: Tensor | None) -> Tensor:
        self._check(input, "input")
        if hx is not None:
            self._check(hx, "hidden")
        batched = input.dim() == 2
        if not batched:
            input = input.unsqueeze(0)
        hx = self._zeros(input) if hx is None else hx if batched else hx.unsqueeze(0)
        result = function(input, hx, *self._weights())
        return result if batched else result.squeeze(0)


class RNNCell(RNNCellBase):
    """One step of RNN.  input (N, F) or (F), hx (N, H) -> (N, H)."""

    __constants__ = ["input_size", "hidden_size", "bias", "nonlinearity"]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=1, device=device, dtype=dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        function = torch.rnn_tanh_cell if self.nonlinearity == "tanh" else torch.rnn_relu_cell
        return self._step(function, input, hx)


class LSTMCell(RNNCellBase):
    """One step of LSTM.  input (N, F) or (F), hx = h (N, H), c (N, H) -> h, c."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=4, device=device, dtype=dtype)

    def forward(self, input: Tensor, hx: Any = None) -> tuple[Tensor, Tensor]:
        self._check(input, "input")
        for i, value in enumerate(hx or ()):
            self._check(value, f"hx[{i}]")
        batched = input.dim() == 2
        if not batched:
            input = input.unsqueeze(0)
        if hx is None:
            hx = (self._zeros(input),) * 2
        elif not batched:
            hx = hx[0].unsqueeze(0), hx[1].unsqueeze(0)
        h, c = torch.lstm_cell(input, hx, *self._weights())
        return (h, c) if batched else (h.squeeze(0), c.squeeze(0))


class GRUCell(RNNCellBase):
    """One step of GRU.  input (N, F) or (F), hx (N, H) -> (N, H)."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=3, device=device, dtype=dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._step(torch.gru_cell, input, hx)
