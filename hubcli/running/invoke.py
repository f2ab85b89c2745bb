"""Runs repository code: imports a hubconf, lists what it defines, calls an entrypoint.

Two kinds of caller.  For a Python program the repository's exceptions pass unchanged.  For a
command (`command=True`) they become one line with file, line and message, a wrong argument is found
before the call, and file descriptor 1 points to stderr while foreign code runs.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import GeneratorType, ModuleType
from typing import Any

from hubcli.base import once, output
from hubcli.base.request import Request
from hubcli.cache import weights
from hubcli.cache.checkouts import Checkout
from hubcli.errors import HubconfNotFoundError, HubError, RepositoryCodeError, UnusedDependencyError, UsageError
from hubcli.net.http import secret_scope
from hubcli.reading import dependencies, hubconf
from hubcli.reading.hubconf import EntryPoint, HubConf
from hubcli.running import argv, background, call_errors, checkpoints, downloads, frameworks, isolation, stray_files
from hubcli.running.isolation import Namespace
from hubcli.running.result import Description, Result, is_module

_MOST_YIELDED = 1000  # values of an entrypoint that is a generator


def call(
    checkout: Checkout,
    entrypoint: str,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    framework: str = "auto",
    fresh: bool = False,
    command: bool = False,
) -> Result:
    """Call `entrypoint` of the checkout's hubconf with `args` and `kwargs`.

    `fresh` demands that weights marked stale are fetched anew.  Raises DependencyError,
    NotFoundError, UsageError and RepositoryCodeError (the last two for commands), and whatever
    `hubcli` functions raise that the entrypoint calls.
    """
    if not isinstance(entrypoint, str):
        raise UsageError("Invalid input: model should be a string of function name")
    kwargs = dict(kwargs or {})
    outer = weights.caller.get()  # a torch.hub.load inside another entrypoint
    now = weights.Caller(
        str(checkout.spec),
        entrypoint,
        hosts(checkout) if outer is None else outer.hosts,
        frameworks.choose_framework(framework),
        fresh or (outer is not None and outer.fresh),
        command or (outer is not None and outer.gated),
        outer.since if outer is not None else weights.STARTED if command else time.time(),
    )
    started = time.perf_counter()
    with _running(checkout, now, command) as namespace:
        function = _function(checkout, namespace, entrypoint, command)
        if command:
            _check_arguments(function, entrypoint, args, kwargs, str(checkout.spec))
            value = _made(call_errors.call(function, entrypoint, args, kwargs, str(checkout.spec)), entrypoint)
        else:
            value = function(*args, **kwargs)
    seconds = time.perf_counter() - started
    if outer is not None:
        outer.used.extend(now.used)
    called = (function, tuple(args), kwargs)
    return Result(value, now.spec, entrypoint, now.framework, seconds, tuple(now.used), namespace, now, called)


def _made(value: Any, entrypoint: str) -> Any:
    """Return what a command takes for the result: of a generator what it yields, which makes it run."""
    if inspect.iscoroutine(value):
        value.close()
        raise RepositoryCodeError(
            f"{entrypoint} is an async def: its call returns a coroutine, and nothing awaits it",
            hint="an entrypoint is a plain function that returns the model",
        )
    return list(itertools.islice(value, _MOST_YIELDED)) if isinstance(value, GeneratorType) else value


def listing(checkout: Checkout, *, framework: str = "auto", command: bool = False) -> HubConf:
    """Return what the hubconf defines when it runs, by torch.hub's rule: every public callable."""
    now = weights.Caller(
        str(checkout.spec),
        "",
        hosts(checkout),
        frameworks.choose_framework(framework),
        gated=command,
    )
    with _running(checkout, now, command) as namespace:
        module = _import(checkout, namespace, command)
        found = [
            _entry(name, getattr(module, name), namespace)
            for name in sorted(dir(module))
            if not name.startswith("_") and callable(getattr(module, name, None))
        ]
        listed = _declared(module)
        return HubConf(tuple(found), listed, False, module.__doc__)


def describe(result: Result) -> Description:
    """Return the model in numbers; an object that is no model has none."""
    name = _class_name(result.value, result.namespace)
    if not is_module(result.value):
        return Description(name, 0, 0, 0, None)
    with running(result, command=True):
        parameters = list(result.value.parameters())
        buffers = list(result.value.buffers())
    tensors = [*parameters, *buffers]
    return Description(
        name,
        sum(one.numel() for one in parameters),
        sum(one.numel() for one in buffers),
        sum(one.numel() * one.element_size() for one in tensors),
        str(tensors[0].device) if tensors else None,
    )


def move(result: Result, device: str) -> None:
    """Move a model to a device."""
    _require_module(result, "moved to a device")
    try:
        result.value.to(device)
    except (RuntimeError, ValueError, NotImplementedError, AssertionError) as error:
        raise UsageError(
            f"--device {device!r}: {' '.join(str(error).split())[:300]}",
            hint="`hub env` shows what this machine offers",
        ) from None


def set_eval(result: Result) -> None:
    """Put a model into eval mode; what is no module has none."""
    if is_module(result.value):
        with running(result, command=True):
            result.value.eval()


def save_state_dict(result: Result, path: Path) -> None:
    """Write a model's state dict to a .safetensors or .pth file, which is replaced at the end."""
    _require_module(result, "saved")
    check_save(path, force=True)  # whether it exists was checked before anything ran
    with running(result, command=True):
        state = result.value.state_dict()
    framework = frameworks.import_framework(result.framework)
    if path.suffix in (".pth", ".pt"):
        framework.save(state, path)
        return
    from engine import serialization

    if result.framework == "torch":
        state = {name: tensor.detach().cpu().numpy() for name, tensor in state.items()}
    serialization.save_safetensors(state, path)


def check_save(path: Path | None, force: bool = False) -> None:
    """Refuse a --save that could not be written, or that exists."""
    if path is None:
        return
    if path.suffix not in (".safetensors", ".pth", ".pt"):
        raise UsageError(
            f"--save {str(path)!r} is neither .safetensors nor .pth nor .pt",
            hint="the file's extension chooses the format",
        )
    if not path.parent.is_dir():
        raise UsageError(f"--save {str(path)!r}: there is no folder {path.parent}", hint="make it first")
    if path.exists() and not force:
        raise UsageError(f"--save {str(path)!r} exists", hint="--force replaces it")


def _require_module(result: Result, what: str) -> None:
    if not is_module(result.value):
        kind = type(result.value).__name__
        raise UsageError(f"{result.entrypoint} returned {output.a(kind)}; only an nn.Module can be {what}")


@contextlib.contextmanager
def running(result: Result, *, command: bool = False) -> Iterator[None]:
    """Go on running the model's code, a forward pass for instance, under the same rules."""
    if result.namespace is None:
        with _reported(result):
            yield
        return
    token = weights.caller.set(result.caller)
    named = frozenset() if result.caller is None else result.caller.hosts
    try:
        with secret_scope.naming(named), _guarded(result.namespace, result.spec, command):
            yield
    finally:
        weights.caller.reset(token)


@contextlib.contextmanager
def _reported(result: Result) -> Iterator[None]:
    try:
        yield
    except (HubError, MemoryError):
        raise
    except Exception as error:
        text = " ".join(str(error).split())
        raise RepositoryCodeError(f"{result.entrypoint}: {text or type(error).__name__}", spec=result.spec) from error


@contextlib.contextmanager
def _running(checkout: Checkout, now: weights.Caller, command: bool) -> Iterator[Namespace]:
    if not (checkout.path / "hubconf.py").is_file():
        raise HubconfNotFoundError(
            f"no hubconf.py in {checkout.spec}",
            hint="a repository for hub has a hubconf.py at its top",
            spec=str(checkout.spec),
        )
    namespace = isolation.register(checkout.path, checkout.commit, now.framework)
    downloads.install()
    stray_files.watch(checkout)
    background.note()
    with checkpoints.permitting(checkout, now.framework):
        token = weights.caller.set(now)
        try:
            with secret_scope.naming(now.hosts), _guarded(namespace, now.spec, command):
                yield namespace
        finally:
            weights.caller.reset(token)


@contextlib.contextmanager
def _guarded(namespace: Namespace, spec: str, command: bool) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        if command:
            stack.enter_context(background.separate_output())  # the last to be undone
            stack.enter_context(output.fd1_to_stderr())
            stack.enter_context(background.threads_inherit())
        stack.enter_context(namespace.active())
        stack.enter_context(argv.of(namespace.root / "hubconf.py"))
        try:
            yield
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            trace = error.__traceback__
            closed = isinstance(error, GeneratorExit) and (trace is None or trace.tb_next is None)  # this generator is
            if closed or not command:
                raise
            from hubcli.running import diagnosis

            _close_answers(error)
            if isinstance(error, HubError):
                error.causes = error.causes or diagnosis.causes_of(error, namespace)
                raise
            raise diagnosis.explain(error, namespace, spec) from error


def _close_answers(error: BaseException) -> None:
    """Close the connections that urllib's HTTPErrors in the chain hold: repository code rarely does."""
    import urllib.error

    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        if isinstance(one, urllib.error.HTTPError):
            one.close()
        one = one.__cause__ or one.__context__


def _import(checkout: Checkout, namespace: Namespace, command: bool) -> ModuleType:
    """Return the hubconf module, once what it depends on is known to be there.

    Read statically, `dependencies` explains an import that fails; what the module itself says then
    is what counts, for it may depend on versions and platforms.
    """
    spec = str(checkout.spec)
    try:
        module = namespace.load("hubconf")
    except ImportError as error:
        from hubcli.running import diagnosis

        with contextlib.suppress(RepositoryCodeError):  # the import's own error says it better
            declared = hubconf.read(checkout.path).dependencies
            if _missing(declared, checkout, namespace).missing:
                raise diagnosis.missing(error.name or "", "", namespace, spec) from error
        raise
    report = _missing(_declared(module), checkout, namespace)
    if report.missing:
        _go_on_without(report.missing, namespace, spec, command)
    for text in report.warnings:
        once.warning(text)  # never Python's: where those are errors, torch.hub's call would go through
    return module


def _missing(names: Sequence[str], checkout: Checkout, namespace: Namespace) -> dependencies.Report:
    return dependencies.check(names, root=checkout.path, framework=namespace.framework)


def _go_on_without(names: Sequence[str], namespace: Namespace, spec: str, command: bool) -> None:
    """Ask the user whether to go on without declared dependencies that hubconf.py imports without."""
    if Request.current().allow_missing:
        output.warning(f"going on without {', '.join(names)}, which hubconf.py declares")
        return
    from hubcli.running import diagnosis

    error = UnusedDependencyError(
        f"Missing dependencies: {', '.join(names)}",
        hint=f"{diagnosis.everything(namespace).hint} (hubconf.py imports without: --allow-missing goes on)",
        spec=spec,
    )
    if not (command and asked_to_go_on(error)):
        raise error


def asked_to_go_on(error: UnusedDependencyError) -> bool:
    """Return whether somebody sits at the terminal, and wants to go on without what is missing."""
    if not (sys.stdin is not None and sys.stdin.isatty()):
        return False
    question = f"{error.message}, but hubconf.py imports without. Go on? [y/N] "
    sys.stderr.write(output.printable(question))
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _function(checkout: Checkout, namespace: Namespace, entrypoint: str, command: bool) -> Any:
    module = _import(checkout, namespace, command)
    function = getattr(module, entrypoint, None) if entrypoint in dir(module) else None
    if not callable(function):
        names = [name for name in dir(module) if not name.startswith("_") and callable(getattr(module, name, None))]
        hint = hubconf.near_names(entrypoint, names)
        raise hubconf.missing_callable(entrypoint, hint, str(checkout.spec), checkout.renewal())
    return function


def _declared(module: ModuleType) -> tuple[str, ...]:
    declared = getattr(module, "dependencies", None) or ()
    if isinstance(declared, str):
        declared = (declared,)
    if not isinstance(declared, Sequence):
        return ()
    return tuple(name for name in declared if isinstance(name, str))


def _check_arguments(function: Any, entrypoint: str, args: Sequence[Any], kwargs: Mapping[str, Any], spec: str) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # written in C: the call itself will tell
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise UsageError(
            f"{entrypoint}: {error}",
            hint=f"its signature is {entrypoint}{signature}",
            spec=spec,
        ) from None


def _entry(name: str, value: Any, namespace: Namespace) -> EntryPoint:
    doc = inspect.getdoc(value)
    try:
        signature: str | None = str(inspect.signature(value))
    except (TypeError, ValueError):
        signature = None
    target = getattr(value, "func", value)  # functools.partial
    home = getattr(target, "__module__", None) or type(target).__module__
    external = not str(home).startswith(namespace.prefix)
    return EntryPoint(name, hubconf.summary_line(doc), doc, signature, "exec", external)


def hosts(checkout: Checkout) -> frozenset[str]:
    """Return the hosts that the user has named by naming the repository; a folder names none."""
    return secret_scope.hosts(checkout.url) if checkout.url and checkout.kind != "local" else frozenset()


def _class_name(value: object, namespace: Namespace | None) -> str:
    """Return the class as the repository's code names it."""
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    prefix = "" if namespace is None else namespace.prefix + "."
    return name.removeprefix(prefix).removeprefix("builtins.")
