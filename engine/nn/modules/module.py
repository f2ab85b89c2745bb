"""`Module`: the base of every network; `_state.py` holds how it is saved and loaded."""

from __future__ import annotations

import inspect
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Self

from engine.autograd.graph import requires_grad_of  # noqa: F401
from engine.core.hooks import RemovableHandle, noted
from engine.dispatch import providers
from engine.nn.modules import _hooks
from engine.nn.modules._conversions import Conversions, _parse_to  # noqa: F401
from engine.nn.modules._hooks import (
    BackwardHook,
    register_module_backward_hook,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from engine.nn.modules._hooks import WrappedHook as _WrappedHook
from engine.nn.modules._state import (
    _EXTRA_STATE_KEY_SUFFIX,  # noqa: F401
    StateDict,
    _IncompatibleKeys,  # noqa: F401
    typename,
)
from engine.nn.parameter import Buffer, Parameter
from engine.tensor import Tensor

__all__ = [
    "Module",
    "register_module_backward_hook",
    "register_module_buffer_registration_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
]

_DICTS = (
    "_backward_pre_hooks",
    "_backward_hooks",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)


def _addindent(s_: str, numSpaces: int) -> str:
    first, *rest = s_.split("\n")
    return "\n".join([first, *(numSpaces * " " + line for line in rest)])


def _check_name(kind: str, name: Any) -> None:
    if not isinstance(name, str):
        raise TypeError(f"{kind} name should be a string. Got {typename(name)}")
    if "." in name:
        detail = f", got: {name}" if kind == "module" else ""
        raise KeyError(f'{kind} name can\'t contain "."{detail}')
    if name == "":
        raise KeyError(f'{kind} name can\'t be empty string ""')


class Module(Conversions, StateDict):
    """A piece of a network: parameters, buffers, child modules and a `forward`.

    https://docs.pytorch.org/docs/2.13/generated/torch.nn.Module.html
    """

    dump_patches = False
    _version = 1  # of the layout of the state dict; saved in its `_metadata`
    training: bool
    call_super_init = False
    _compiled_call_impl: Callable | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if self.call_super_init is False:
            if kwargs:
                raise TypeError(
                    f"{type(self).__name__}.__init__() got an unexpected keyword argument '{next(iter(kwargs))}'"
                )
            if args:
                raise TypeError(
                    f"{type(self).__name__}.__init__() takes 1 positional argument but {len(args) + 1} were given"
                )
        own = self.__dict__
        own["training"] = True
        own["_parameters"] = {}
        own["_buffers"] = {}
        own["_non_persistent_buffers_set"] = set()
        own["_backward_pre_hooks"] = OrderedDict()
        own["_backward_hooks"] = OrderedDict()
        own["_is_full_backward_hook"] = None
        for name in _DICTS[2:]:
            own[name] = OrderedDict()
        own["_modules"] = {}
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    if TYPE_CHECKING:
        forward: Callable[..., Any]  # each module has arguments of its own
    else:

        def forward(self, *input: Any) -> Any:
            """Compute the output of a call; subclasses define it."""
            raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    # --- registration

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is state but no parameter; it is in `state_dict` unless `persistent=False`."""
        if "_buffers" not in self.__dict__:
            raise AttributeError("cannot assign buffer before Module.__init__() call")
        _check_name("buffer", name)
        if name not in self._buffers and hasattr(self, name):
            raise KeyError(f"attribute '{name}' already exists")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{typename(tensor)}' object to buffer '{name}' (torch Tensor or None required)"
            )
        for hook in _hooks.buffer_registration.values():
            output = hook(self, name, tensor)
            tensor = tensor if output is None else output
        self._buffers[name] = tensor
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter; None reserves the name."""
        if "_parameters" not in self.__dict__:
            raise AttributeError("cannot assign parameter before Module.__init__() call")
        _check_name("parameter", name)
        if name not in self._parameters and hasattr(self, name):
            raise KeyError(f"attribute '{name}' already exists")
        if param is not None:
            if not isinstance(param, Parameter):
                raise TypeError(
                    f"cannot assign '{typename(param)}' object to parameter '{name}' (torch.nn.Parameter or None "
                    "required)"
                )
            if param.grad_fn:
                raise ValueError(
                    f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be created "
                    f"explicitly. To express '{name}' as a function of another Tensor, compute the value in the "
                    "forward() method."
                )
            for hook in _hooks.parameter_registration.values():
                output = hook(self, name, param)
                param = param if output is None else output
        self._parameters[name] = param

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a child module."""
        if not isinstance(module, Module) and module is not None:
            raise TypeError(f"{typename(module)} is not a Module subclass")
        if not isinstance(name, str):
            raise TypeError(f"module name should be a string. Got {typename(name)}")
        if name not in self._modules and hasattr(self, name):
            raise KeyError(f"attribute '{name}' already exists")
        _check_name("module", name)
        self._modules[name] = self._registered(name, module)

    def _registered(self, name: str, module: Any) -> Any:
        for hook in _hooks.module_registration.values():
            output = hook(self, name, module)
            module = module if output is None else output
        return module

    def register_module(self, name: str, module: Module | None) -> None:
        """Alias of `add_module`."""
        self.add_module(name, module)

    # --- look-up by path

    def get_submodule(self, target: str) -> Module:
        """The descendant `a.b.c`; AttributeError if there is none."""
        found: Any = self
        for item in target.split(".") if target else ():
            if not hasattr(found, item):
                raise AttributeError(found._get_name() + " has no attribute `" + item + "`")
            found = getattr(found, item)
            if not isinstance(found, Module):
                raise AttributeError("`" + item + "` is not an nn.Module")
        return found

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Put `module` in the place `a.b.c`; with `strict` the place must exist."""
        if target == "":
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, Module):
            raise ValueError("`module` is not an nn.Module, found " + str(type(module)))
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if hasattr(parent, name):
            if not isinstance(getattr(parent, name), Module):
                raise AttributeError("`" + name + "` is not an nn.Module")
        elif strict:
            raise AttributeError(parent._get_name() + " has no attribute `" + name + "`")
        setattr(parent, name, module)

    def _leaf_of(self, target: str) -> tuple[Any, str, Any]:
        path, _, name = target.rpartition(".")
        owner = self.get_submodule(path)
        if not hasattr(owner, name):
            raise AttributeError(owner._get_name() + " has no attribute `" + name + "`")
        return owner, name, getattr(owner, name)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter `a.b.weight`; AttributeError if there is none."""
        _, name, param = self._leaf_of(target)
        if not isinstance(param, Parameter):
            raise AttributeError("`" + name + "` is not an nn.Parameter")
        return param

    def get_buffer(self, target: str) -> Tensor:
        """The buffer `a.b.running_mean`; AttributeError if there is none."""
        owner, name, buffer = self._leaf_of(target)
        if name not in owner._buffers:
            raise AttributeError("`" + name + "` is not a buffer")
        return buffer

    # --- hooks

    @staticmethod
    def _add_hook(hooks: Any, hook: Callable, prepend: bool = False, extra: Any = None) -> RemovableHandle:
        handle = RemovableHandle(hooks, extra_dict=extra)
        hooks[handle.id] = hook
        if prepend:
            hooks.move_to_end(handle.id, last=False)
        return handle

    def register_full_backward_pre_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Call `hook(module, grad_output)` before this module's backward; a result replaces grad_output."""
        return self._add_hook(self._backward_pre_hooks, hook, prepend)

    def _set_full(self, value: bool) -> None:
        if self._is_full_backward_hook is (not value):
            raise RuntimeError(
                "Cannot use both regular backward hooks and full backward hooks on a single Module. Please use only "
                "one of them."
            )
        self._is_full_backward_hook = value

    def register_backward_hook(self, hook: Callable) -> RemovableHandle:
        """Deprecated: `hook(module, grad_input, grad_output)` of the last node only."""
        self._set_full(False)
        return self._add_hook(self._backward_hooks, hook)

    def register_full_backward_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Call `hook(module, grad_input, grad_output)` after backward; a result replaces grad_input."""
        self._set_full(True)
        return self._add_hook(self._backward_hooks, hook, prepend)

    def register_forward_pre_hook(
        self, hook: Callable, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, args)` (`with_kwargs`: and kwargs) before forward; a result replaces them."""
        kwargs_dict = self._forward_pre_hooks_with_kwargs
        handle = self._add_hook(self._forward_pre_hooks, hook, prepend, kwargs_dict)
        if with_kwargs:
            kwargs_dict[handle.id] = True
        return handle

    def register_forward_hook(
        self,
        hook: Callable,
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """Call `hook(module, args, output)` after forward; a result replaces the output."""
        extra = [self._forward_hooks_with_kwargs, self._forward_hooks_always_called]
        handle = self._add_hook(self._forward_hooks, hook, prepend, extra)
        if with_kwargs:
            self._forward_hooks_with_kwargs[handle.id] = True
        if always_call:
            self._forward_hooks_always_called[handle.id] = True
        return handle

    def _hooked(self) -> bool:
        """Return whether any hook wants to see a call (`__call__` asks the same without a call of its own)."""
        own = self._backward_hooks or self._backward_pre_hooks or self._forward_hooks
        own = own or self._forward_pre_hooks
        return bool(own or _hooks.backward_pre or _hooks.backward or _hooks.forward or _hooks.forward_pre)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not (
            self._backward_hooks
            or self._backward_pre_hooks
            or self._forward_hooks
            or self._forward_pre_hooks
            or _hooks.backward_pre
            or _hooks.backward
            or _hooks.forward
            or _hooks.forward_pre
            or self._compiled_call_impl
        ):
            return self.forward(*args, **kwargs)
        return (self._compiled_call_impl or self._call_impl)(*args, **kwargs)

    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        if not self._hooked():
            return self.forward(*args, **kwargs)
        done: set[int] = set()
        state = [args, kwargs, None]  # what always_call hooks see if forward raises
        try:
            return self._call_with_hooks(state, done)
        except Exception:
            self._always_called_hooks(state, done)
            raise

    def _call_with_hooks(self, state: list, done: set[int]) -> Any:
        pre_hooks = [*_hooks.backward_pre.values(), *self._backward_pre_hooks.values()]
        full, old = _hooks.split_backward_hooks(self)
        for hook_id, hook in (*_hooks.forward_pre.items(), *self._forward_pre_hooks.items()):
            if hook_id in self._forward_pre_hooks_with_kwargs:
                out = hook(self, state[0], state[1])
                if out is not None:
                    if not (isinstance(out, tuple) and len(out) == 2):
                        raise RuntimeError(
                            f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {out}."
                        )
                    state[0], state[1] = out
            else:
                out = hook(self, state[0])
                if out is not None:
                    state[0] = out if isinstance(out, tuple) else (out,)
        backward_hook = BackwardHook(self, full, pre_hooks) if full or pre_hooks else None
        if backward_hook is not None:
            state[0] = backward_hook.setup_input_hook(state[0])
        state[2] = self.forward(*state[0], **state[1])
        for hook_id, hook in (*_hooks.forward.items(), *self._forward_hooks.items()):
            done.add(hook_id)
            if hook_id in self._forward_hooks_with_kwargs or hook_id in _hooks.forward_with_kwargs:
                out = hook(self, state[0], state[1], state[2])
            else:
                out = hook(self, state[0], state[2])
            if out is not None:
                state[2] = out
        result = state[2]
        if backward_hook is not None:
            if not isinstance(result, Tensor | tuple):
                warnings.warn(
                    "For backward hooks to be called, module output should be a Tensor or a tuple of Tensors but "
                    f"received {type(result)}",
                    stacklevel=4,
                )
            result = state[2] = backward_hook.setup_output_hook(result)
        if old:
            var = result
            while not isinstance(var, Tensor):
                if isinstance(var, dict):
                    var = next(v for v in var.values() if isinstance(v, Tensor))
                else:
                    var = var[0]
            grad_fn = var.grad_fn
            if grad_fn is not None:
                for hook in old:
                    grad_fn.register_hook(_WrappedHook(hook, self))
                _hooks.warn_non_full(state[0], result, grad_fn)
        return result

    def _always_called_hooks(self, state: list, done: set[int]) -> None:
        """After an exception: the hooks registered with always_call=True that have not run."""
        todo = [(i, h, "global module") for i, h in _hooks.forward.items() if i in _hooks.forward_always]
        todo += [(i, h, "module") for i, h in self._forward_hooks.items() if i in self._forward_hooks_always_called]
        for hook_id, hook, which in todo:
            if hook_id in done:
                continue
            try:
                with_kwargs = hook_id in self._forward_hooks_with_kwargs
                out = hook(self, *state) if with_kwargs else hook(self, state[0], state[2])
                if out is not None:
                    state[2] = out
            except Exception as e:
                warnings.warn(
                    f"{which} forward hook with ``always_call=True`` raised an exception that was silenced as another "
                    f"error was raised in forward: {e}",
                    stacklevel=4,
                )

    # --- attributes

    def __getstate__(self) -> dict:
        state = self.__dict__.copy()
        state.pop("_compiled_call_impl", None)
        return state

    def __setstate__(self, state: dict) -> None:
        own = self.__dict__
        own.update(state)
        for name in _DICTS:  # pickles of older versions lack some
            own.setdefault(name, OrderedDict())
        own.setdefault("_non_persistent_buffers_set", set())
        own.setdefault("_is_full_backward_hook", None)

    def __getattr__(self, name: str) -> Any:
        own = self.__dict__
        for kind in ("_parameters", "_buffers", "_modules"):
            found = own.get(kind)
            if found is not None and name in found:
                return found[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def _forget(self, name: str, *kinds: str) -> None:
        self.__dict__.pop(name, None)
        for kind in kinds:
            self.__dict__[kind].pop(name, None)
        self._non_persistent_buffers_set.discard(name)

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        params = own.get("_parameters")
        if isinstance(value, Parameter):
            if params is None:
                raise AttributeError("cannot assign parameters before Module.__init__() call")
            self._forget(name, "_buffers", "_modules")
            self.register_parameter(name, value)
            return
        if params is not None and name in params:
            if value is not None:
                raise TypeError(
                    f"cannot assign '{typename(value)}' as parameter '{name}' (torch.nn.Parameter or None expected)"
                )
            self.register_parameter(name, value)
            return
        modules = own.get("_modules")
        if isinstance(value, Module):
            if modules is None:
                raise AttributeError("cannot assign module before Module.__init__() call")
            self._forget(name, "_parameters", "_buffers")
            modules[name] = self._registered(name, value)
        elif modules is not None and name in modules:
            if value is not None:
                raise TypeError(
                    f"cannot assign '{typename(value)}' as child module '{name}' (torch.nn.Module or None expected)"
                )
            modules[name] = self._registered(name, value)
        elif isinstance(value, Tensor) or (own.get("_buffers") and name in own["_buffers"]):
            self._set_buffer_or_attribute(name, value)
        else:
            object.__setattr__(self, name, value)

    def _set_buffer_or_attribute(self, name: str, value: Any) -> None:
        buffers = self.__dict__.get("_buffers")
        is_buffer = isinstance(value, Buffer)
        if not (is_buffer or (buffers is not None and name in buffers)):
            object.__setattr__(self, name, value)
            return
        if value is not None and not isinstance(value, Tensor):
            raise TypeError(
                f"cannot assign '{typename(value)}' as buffer '{name}' (torch.nn.Buffer, torch.Tensor or None expected)"
            )
        persistent = value.persistent if is_buffer else name not in self._non_persistent_buffers_set
        if (
            getattr(self.register_buffer, "__func__", None) is Module.register_buffer
            or "persistent" in inspect.signature(self.register_buffer).parameters
        ):
            self.register_buffer(name, value, persistent)
        elif persistent:
            self.register_buffer(name, value)
        else:
            raise RuntimeError(
                "Registering a non-persistent buffer on a Module subclass that implements register_buffer() without "
                "the persistent argument is not allowed."
            )

    def __delattr__(self, name: str) -> None:
        if name in self._parameters:
            del self._parameters[name]
        elif name in self._buffers:
            del self._buffers[name]
            self._non_persistent_buffers_set.discard(name)
        elif name in self._modules:
            del self._modules[name]
        else:
            object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        keys = [*dir(type(self)), *self.__dict__, *self._parameters, *self._modules, *self._buffers]
        return sorted(key for key in keys if not key[0].isdigit())

    # --- iteration

    def _named_members(
        self,
        get_members_fn: Callable,
        prefix: str = "",
        recurse: bool = True,
        remove_duplicate: bool = True,
    ) -> Iterator[tuple[str, Any]]:
        seen = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, value in get_members_fn(module):
                if value is None or value in seen:
                    continue
                if remove_duplicate:
                    seen.add(value)
                yield path + ("." if path else "") + name, value

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Every parameter once."""
        for _, param in self.named_parameters(recurse=recurse):
            yield param

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """(path, parameter) for every parameter."""
        yield from self._named_members(lambda m: m._parameters.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Every buffer once."""
        for _, buf in self.named_buffers(recurse=recurse):
            yield buf

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """(path, buffer) for every buffer."""
        yield from self._named_members(lambda m: m._buffers.items(), prefix, recurse, remove_duplicate)

    def children(self) -> Iterator[Module]:
        """The direct child modules, each once."""
        for _, module in self.named_children():
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """(name, module) for the direct child modules."""
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """This module and all its descendants."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_modules(
        self, memo: set | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """(path, module) for this module ("" itself) and all its descendants."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                path = prefix + ("." if prefix else "") + name
                yield from module.named_modules(memo, path, remove_duplicate)

    # --- mode, gradients

    def train(self, mode: bool = True) -> Self:
        """Set training mode (dropout on, batch statistics) here and below; returns self."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> Self:
        """Set evaluation mode; returns self."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Set `requires_grad` of every parameter; returns self."""
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    @noted
    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of every parameter, or zero them in place."""
        for p in self.parameters():
            if p.grad is None:
                continue
            if set_to_none:
                p.grad = None
                continue
            if p.grad.grad_fn is not None:
                p.grad.detach_()
            else:
                p.grad.requires_grad_(False)
            p.grad.zero_()

    # --- printing

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """Return the text that `repr` prints between the brackets; subclasses define it."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        if len(lines) == 1 and not self._modules:
            return f"{self._get_name()}({lines[0]})"
        lines += [f"({key}): {_addindent(repr(module), 2)}" for key, module in self._modules.items()]
        inner = "\n  " + "\n  ".join(lines) + "\n" if lines else ""
        return f"{self._get_name()}({inner})"

    def _replicate_for_data_parallel(self) -> Any:
        replica = type(self).__new__(type(self))
        replica.__dict__ = self.__dict__.copy()
        replica._parameters = {}
        replica._buffers = replica._buffers.copy()
        replica._modules = replica._modules.copy()
        replica._is_replica = True
        return replica

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Let calls of this module run the plans of `engine.compile(self, *args, **kwargs)`; the module stays itself.

        https://docs.pytorch.org/docs/2.13/generated/torch.nn.Module.html#torch.nn.Module.compile
        """
        made = providers.compile(self, *args, **kwargs)
        self.__dict__["_compiled_call_impl"] = None if made is self else made.beneath(self._call_impl).forward
