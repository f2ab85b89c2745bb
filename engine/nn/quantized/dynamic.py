"""Linear, LSTM, GRU and their cells with weights of 8 bits, whose inputs are quantized call by call.

They come from float modules by `from_float` (`torch.ao.quantization.quantize_dynamic`) and only infer.  The weights are
in `_packed_params`, pairs of a quantized weight and a bias, under torch's names in a `state_dict`.
https://docs.pytorch.org/docs/2.13/generated/torch.ao.nn.quantized.dynamic.Linear.html
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine import nn
from engine.core import dtypes
from engine.encoded.quantized import QuantizedTensor, linear_dynamic, quantize_per_channel, quantize_per_tensor
from engine.nn.modules.container import ModuleList
from engine.nn.modules.module import Module
from engine.nn.quantized.observers import default_dynamic_qconfig
from engine.nn.utils.rnn import PackedSequence
from engine.ops import functions as torch
from engine.tensor import Tensor

__all__ = ["GRU", "LSTM", "GRUCell", "LSTMCell", "Linear", "LinearPackedParams", "PackedParameter", "RNNCell"]


def quantized_weight(weight: Tensor, observer: Any, dtype: Any) -> Tensor:
    """The weight as its observer's range asks for; for float16 rounded to that."""
    weight = weight.detach().float()
    if dtype is dtypes.float16:
        return weight.to(dtypes.float16)
    observer(weight)
    scale, zero = observer.calculate_qparams()
    if hasattr(observer, "ch_axis"):
        return quantize_per_channel(weight, scale, zero, observer.ch_axis, dtype)
    return quantize_per_tensor(weight, float(scale), int(zero), dtype)  # type: ignore[no-any-return]


def _product(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if isinstance(weight, QuantizedTensor):
        return linear_dynamic(input, weight, bias)
    return nn.functional.linear(input.detach(), weight.float(), bias).detach()  # type: ignore[no-any-return]


def _observer(module: Any, dtype: Any) -> Any:
    """The weight's observer of a module: that of its `qconfig`, else the range of the whole weight."""
    found = getattr(module, "qconfig", None)
    config = default_dynamic_qconfig if found is None else found
    return None if dtype is dtypes.float16 else config.weight()


def _empty(rows: int, columns: int, dtype: Any) -> Tensor:
    zeros = torch.zeros(rows, columns)
    return zeros.to(dtypes.float16) if dtype is dtypes.float16 else quantize_per_tensor(zeros, 1.0, 0, dtypes.qint8)


class LinearPackedParams(Module):
    """A quantized weight and a bias, as one entry of a state_dict."""

    _version = 3

    def __init__(self, dtype: Any = dtypes.qint8) -> None:
        super().__init__()
        self.dtype = dtype
        self.set_weight_bias(_empty(1, 1, dtype), None)

    def set_weight_bias(self, weight: Tensor, bias: Tensor | None) -> None:
        """Hold this pair: weight (m, k), bias (m) or None."""
        self._packed_params = (weight, bias)

    def _weight_bias(self) -> tuple[Tensor, Tensor | None]:
        return self._packed_params

    def forward(self, x: Tensor) -> Tensor:
        """`x`."""
        return x

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "dtype"] = self.dtype
        destination[prefix + "_packed_params"] = self._weight_bias()

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        if prefix + "_packed_params" in state_dict:
            self.dtype = _dtype_of(state_dict.pop(prefix + "dtype", self.dtype))
            weight, bias = state_dict.pop(prefix + "_packed_params")
        elif prefix + "weight" in state_dict:  # older versions
            self.dtype = _dtype_of(state_dict.pop(prefix + "dtype", dtypes.qint8))
            weight, bias = state_dict.pop(prefix + "weight"), state_dict.pop(prefix + "bias", None)
        else:
            missing_keys.append(prefix + "_packed_params")
            return
        if not isinstance(weight, QuantizedTensor) and self.dtype is dtypes.qint8:
            error_msgs.append(f"{prefix}_packed_params holds a weight that is not quantized")
            return
        self.set_weight_bias(weight, bias)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, False, missing_keys, [], error_msgs)

    def __repr__(self) -> str:
        return repr(self._weight_bias())


def _dtype_of(value: Any) -> Any:
    if isinstance(value, dtypes.dtype):
        return value
    return getattr(dtypes, value.path.rpartition(".")[2])  # how a checkpoint names it


class PackedLinear(Module):
    """A linear layer whose weight and bias are in `_packed_params`."""

    _packed_params: LinearPackedParams

    def weight(self) -> Tensor:
        """The quantized weight (out_features, in_features)."""
        return self._packed_params._weight_bias()[0]

    def bias(self) -> Tensor | None:
        """The bias (out_features), or None."""
        return self._packed_params._weight_bias()[1]

    def set_weight_bias(self, w: Tensor, b: Tensor | None) -> None:
        """Use this quantized weight and this bias."""
        self._packed_params.set_weight_bias(w, b)


class Linear(PackedLinear):
    """x @ weight.T + bias with integer products: (*, in_features) -> (*, out_features), float32 both."""

    _version = 4
    _FLOAT_MODULE: Any = None

    def __init__(self, in_features: int, out_features: int, bias_: bool = True, dtype: Any = dtypes.qint8) -> None:
        super().__init__()
        if dtype not in (dtypes.qint8, dtypes.float16):
            raise RuntimeError("Unsupported dtype specified for dynamic quantized Linear!")
        self.in_features, self.out_features, self.version = in_features, out_features, self._version
        self.scale, self.zero_point = 1.0, 0
        self._packed_params = LinearPackedParams(dtype)
        bias = torch.zeros(out_features) if bias_ else None
        self._packed_params.set_weight_bias(_empty(out_features, in_features, dtype), bias)

    def forward(self, x: Tensor) -> Tensor:
        """(*, in_features) -> (*, out_features)."""
        result = _product(x, *self._packed_params._weight_bias())
        return result.to(x.dtype)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Linear:
        """That of a float Linear, by the observer of its `qconfig`."""
        dtype = getattr(mod, "_quantized_dtype", dtypes.qint8)
        weight = quantized_weight(mod.weight, _observer(mod, dtype), dtype)
        made = cls(mod.in_features, mod.out_features, mod.bias is not None, dtype)
        made.set_weight_bias(weight, mod.bias)
        return made

    @classmethod
    def from_reference(cls, ref_qlinear: Any) -> Linear:
        """NotImplementedError: there are no reference modules."""
        raise NotImplementedError("torch.ao.nn.quantized.dynamic.Linear.from_reference is not supported")

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "scale"] = torch.tensor(self.scale)
        destination[prefix + "zero_point"] = torch.tensor(self.zero_point)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        for name, kind in (("scale", float), ("zero_point", int)):
            if prefix + name in state_dict:
                setattr(self, name, kind(state_dict.pop(prefix + name)))
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _get_name(self) -> str:
        return "DynamicQuantizedLinear"

    def extra_repr(self) -> str:
        """Sizes, dtype and scheme."""
        text = f"in_features={self.in_features}, out_features={self.out_features}, dtype={self._packed_params.dtype}"
        weight = self.weight()
        return f"{text}, qscheme={weight.qscheme()}" if isinstance(weight, QuantizedTensor) else text

    def __repr__(self) -> str:
        return f"{self._get_name()}({self.extra_repr()})"


# --- recurrence


class PackedParameter(Module):
    """The weights of one direction of one layer: (weight_ih, weight_hh, bias_ih, bias_hh)."""

    def __init__(self, param: tuple[Tensor, ...]) -> None:
        super().__init__()
        self.param = param

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "param"] = self.param

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        found = state_dict.pop(prefix + "param", None)
        if found is None:
            missing_keys.append(prefix + "param")
        elif not isinstance(found, tuple) or len(found) != 4:
            error_msgs.append(f"{prefix}param holds a {type(found).__name__}, not two weights and two biases")
        else:
            self.param = found


Step = Callable[[Tensor, Tensor, Any], Any]


def _lstm_step(ih: Tensor, hh: Tensor, state: Any) -> Any:
    i, f, g, o = (ih + hh).chunk(4, -1)
    cell = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


def _gru_step(ih: Tensor, hh: Tensor, state: Any) -> Any:
    (ri, zi, ni), (rh, zh, nh) = ih.chunk(3, -1), hh.chunk(3, -1)
    new = (ni + (ri + rh).sigmoid() * nh).tanh()
    return ((state[0] - new) * (zi + zh).sigmoid() + new,)


def _rnn_step(nonlinearity: str) -> Step:
    return lambda ih, hh, state: ((ih + hh).tanh() if nonlinearity == "tanh" else (ih + hh).relu(),)


def _pack(mod: Any, suffix: str, observer: Any, dtype: Any) -> tuple[Tensor, ...]:
    weights = [quantized_weight(getattr(mod, f"weight_{p}{suffix}"), observer(), dtype) for p in ("ih", "hh")]
    biases = [getattr(mod, f"bias_{p}{suffix}", None) for p in ("ih", "hh")]
    return (*weights, *(None if b is None else b.detach() for b in biases))  # type: ignore[return-value]


class _Recurrent(Module):
    """The base of quantized LSTM and GRU: layers and directions, one step at a time."""

    _step: Any
    _states = 1

    def __init__(self, mod: Any, dtype: Any) -> None:
        super().__init__()
        if mod.training and mod.dropout:
            raise RuntimeError("a quantized recurrent layer only infers: call eval() first")
        if getattr(mod, "proj_size", 0):
            raise NotImplementedError("dynamic quantization of an LSTM with proj_size is not supported")
        names = ("mode", "input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional")
        for name in names:
            setattr(self, name, getattr(mod, name))
        self.dtype, self.training = dtype, False
        suffixes = [
            f"_l{layer}{direction}"
            for layer in range(mod.num_layers)
            for direction in ("", "_reverse")[: 1 + bool(mod.bidirectional)]
        ]
        self._all_weight_values = ModuleList(
            [PackedParameter(_pack(mod, s, lambda: _observer(mod, dtype), dtype)) for s in suffixes]
        )

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """That of a float module, by the observer of its `qconfig`."""
        return cls(mod, getattr(mod, "_quantized_dtype", dtypes.qint8))

    def _direction(self, x: Any, params: Any, state: Any, backwards: bool) -> tuple[Any, Any]:
        """One direction of one layer: x (T, N, k), state (N, hidden) each -> ((T, N, hidden), state)."""
        weight_ih, weight_hh, bias_ih, bias_hh = params
        gates = _product(x, weight_ih, bias_ih).unbind(0)
        found = []
        for gate in reversed(gates) if backwards else gates:
            state = self._step(gate, _product(state[0], weight_hh, bias_hh), state)
            found.append(state[0])
        return torch.stack(found[::-1] if backwards else found), state

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        """As the float module: (T, N, k), or (N, T, k) with batch_first, or (T, k) -> (output, last state)."""
        if isinstance(input, PackedSequence):
            raise NotImplementedError("a PackedSequence given to a dynamically quantized module is not supported")
        with torch.no_grad():
            flat = input.dim() == 2
            x = input.unsqueeze(1) if flat else input.transpose(0, 1) if self.batch_first else input
            count = self.num_layers * (1 + bool(self.bidirectional))
            if hx is None:
                given = [x.new_zeros(count, x.shape[1], self.hidden_size)] * self._states
            else:
                given = list(hx) if self._states > 1 else [hx]
                given = [h.unsqueeze(1) if flat else h for h in given]
            last = []
            for layer in range(self.num_layers):
                directions = []
                for direction in range(1 + bool(self.bidirectional)):
                    number = layer * (1 + bool(self.bidirectional)) + direction
                    params = self._all_weight_values[number].param
                    found, state = self._direction(x, params, tuple(h[number] for h in given), bool(direction))
                    directions.append(found)
                    last.append(state)
                x = torch.cat(directions, -1) if len(directions) > 1 else directions[0]
            states = [torch.stack(list(each)) for each in zip(*last)]
            if flat:
                x, states = x.squeeze(1), [s.squeeze(1) for s in states]
            elif self.batch_first:
                x = x.transpose(0, 1)
            return x, tuple(states) if self._states > 1 else states[0]

    def _get_name(self) -> str:
        return f"DynamicQuantized{self.mode}"

    def extra_repr(self) -> str:
        """Sizes, and what is not its default."""
        text = f"{self.input_size}, {self.hidden_size}"
        defaults = {"num_layers": 1, "bias": True, "batch_first": False, "dropout": 0, "bidirectional": False}
        return text + "".join(f", {n}={getattr(self, n)}" for n, v in defaults.items() if getattr(self, n) != v)

    def __repr__(self) -> str:
        return f"{self._get_name()}({self.extra_repr()})"


class LSTM(_Recurrent):
    """`nn.LSTM` with quantized weights."""

    _step = staticmethod(_lstm_step)
    _states = 2


class GRU(_Recurrent):
    """`nn.GRU` with quantized weights."""

    _step = staticmethod(_gru_step)


class _Cell(Module):
    """One step: input (N, k), state (N, hidden) -> state."""

    _step: Any
    _states = 1

    def __init__(self, mod: Any, dtype: Any) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = mod.input_size, mod.hidden_size, mod.bias
        self.weight_dtype = dtype
        self._packed_weight = PackedParameter(_pack(mod, "", lambda: _observer(mod, dtype), dtype))
        self.training = False

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """That of a float cell."""
        return cls(mod, getattr(mod, "_quantized_dtype", dtypes.qint8))

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        """As the float cell."""
        with torch.no_grad():
            weight_ih, weight_hh, bias_ih, bias_hh = self._packed_weight.param
            state = (hx,) if isinstance(hx, Tensor) else hx
            if state is None:
                state = (input.new_zeros(*input.shape[:-1], self.hidden_size),) * self._states
            found = self._step(_product(input, weight_ih, bias_ih), _product(state[0], weight_hh, bias_hh), state)
            return found if self._states > 1 else found[0]

    def _get_name(self) -> str:
        return f"DynamicQuantized{type(self).__name__}"

    def extra_repr(self) -> str:
        """Sizes."""
        return f"{self.input_size}, {self.hidden_size}" + (", bias=False" if not self.bias else "")


class LSTMCell(_Cell):
    """`nn.LSTMCell` with quantized weights."""

    _step = staticmethod(_lstm_step)
    _states = 2


class GRUCell(_Cell):
    """`nn.GRUCell` with quantized weights."""

    _step = staticmethod(_gru_step)


class RNNCell(_Cell):
    """`nn.RNNCell` with quantized weights."""

    def __init__(self, mod: Any, dtype: Any) -> None:
        super().__init__(mod, dtype)
        self.nonlinearity = mod.nonlinearity
        self._step = _rnn_step(mod.nonlinearity)
