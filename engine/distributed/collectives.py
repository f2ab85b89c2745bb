"""The calls that all processes of a group make together, and messages from one to one.

https://docs.pytorch.org/docs/2.13/distributed.html#collective-functions

`group=None` is all processes; ranks are global ones.  With `async_op=True` a call gives a `Work` at once.  TypeError
for what is no tensor, ValueError for lists of the wrong length, RuntimeError for shapes or dtypes that do not fit,
DistBackendError when another process has ended, calls something else or does not come within the timeout.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine import backends
from engine.distributed.groups import ProcessGroup, Work, get_group_rank, member
from engine.distributed.reducing import ReduceOp
from engine.tensor import Tensor

__all__ = [
    "P2POp",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "irecv",
    "isend",
    "monitored_barrier",
    "recv",
    "recv_object_list",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
    "send",
    "send_object_list",
]


def _check_op(op: Any) -> None:
    if not isinstance(op, ReduceOp):
        raise TypeError(f"Invalid function argument. Expected parameter `op` of type ReduceOp, got {op!r}")


def _check(value: Any, name: str) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{name}` of type torch.Tensor\n"
            f"             but got {type(value)} instead."
        )


def _check_list(values: Any, name: str, count: int | None = None) -> None:
    if not isinstance(values, (list, tuple)) or not all(isinstance(v, Tensor) for v in values):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{name}` of type List[torch.Tensor]\n"
            f"             but got {type(values)} with elements of type {[type(v) for v in values or ()]}."
        )
    if count is not None and len(values) != count:
        raise RuntimeError(f"invalid `{name}` list at index 0 (expected length {count}, got {len(values)})")


def _flat(tensor: Tensor) -> Any:
    """A tensor's elements as a flat array, sharing memory if they lie in order."""
    array = tensor._array
    return backends.xp_of(array).ascontiguousarray(array).reshape(-1)


def _store(tensor: Tensor, flat: Any) -> None:
    """Write what `_flat` gave back, where it was a copy; the tensor counts as written in place."""
    array = tensor._array
    backend = backends.of_array(array)
    if array.size and backend.pointer(array) != backend.pointer(flat):  # `_flat` copied
        array[...] = flat.reshape(array.shape)
    tensor._vc[0] += 1


def _run(
    found: ProcessGroup, flats: Sequence[Any], do: Callable[[Any], Any], asynchronous: bool, result: Any
) -> Work | None:
    """`do(transport)` by the transport of the device on which all of `flats` lie."""
    kinds = {backends.of_array(f).kind for f in flats}
    if len(kinds) > 1:
        raise RuntimeError(f"the tensors of a call must be on one device, got {' and '.join(sorted(kinds))}")
    transport = found.over(*kinds)
    if transport is found.of_gpus:
        return found.queue(flats, lambda: do(transport), asynchronous, result)
    return found.run(lambda: do(transport), asynchronous, result)


def _rank(group: ProcessGroup, rank: int | None, in_group: int | None) -> int:
    if in_group is not None:
        if rank is not None:
            raise ValueError("Can't specify both a global rank and one of the group")
        return in_group
    if rank is not None and group is member(None) and rank not in group.ranks:
        raise RuntimeError(f"invalid root rank: {rank}; the group has the ranks {group.ranks}")
    return get_group_rank(group, 0 if rank is None else rank)


def all_reduce(tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """`tensor` becomes the combination of all processes' (the same bits everywhere)."""
    _check_op(op)
    _check(tensor, "tensor")
    found = member(group)
    if found is None:
        return None
    flat = _flat(tensor)

    def do(transport: Any) -> None:
        transport.all_reduce(flat, op)
        _store(tensor, flat)

    return _run(found, [flat], do, async_op, [tensor])


def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: ReduceOp = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """`tensor` of process `dst` becomes the combination of all."""
    _check_op(op)
    _check(tensor, "tensor")
    found = member(group)
    if found is None:
        return None
    root, flat = _rank(found, dst, group_dst), _flat(tensor)

    def do(transport: Any) -> None:
        transport.reduce(flat, root, op)
        if found.rank() == root:
            _store(tensor, flat)

    return _run(found, [flat], do, async_op, [tensor])


def broadcast(
    tensor: Tensor, src: int | None = None, group: Any = None, async_op: bool = False, group_src: int | None = None
) -> Work | None:
    """`tensor` becomes that of process `src`."""
    _check(tensor, "tensor")
    found = member(group)
    if found is None:
        return None
    root, flat = _rank(found, src, group_src), _flat(tensor)

    def do(transport: Any) -> None:
        transport.broadcast(flat, root)
        if found.rank() != root:
            _store(tensor, flat)

    return _run(found, [flat], do, async_op, [tensor])


def _same(outputs: Sequence[Tensor], like: Tensor) -> None:
    for i, output in enumerate(outputs):
        if output.dtype != like.dtype:
            raise ValueError(f"Invalid usage of tensors with different dtypes: found {like.dtype} and {output.dtype}")
        if output.numel() != like.numel():
            raise RuntimeError(
                f"invalid tensor size at index {i} (expected {tuple(like.shape)}, got {tuple(output.shape)})"
            )


def all_gather(tensor_list: list[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False) -> Work | None:
    """`tensor_list[r]` becomes the tensor of rank r."""
    found = member(group)
    if found is None:
        return None
    _check_list(tensor_list, "tensor_list", found.size())
    _check(tensor, "tensor")
    _same(tensor_list, tensor)
    flat, outputs = _flat(tensor), [_flat(t) for t in tensor_list]

    def do(transport: Any) -> None:
        transport.all_gather(outputs, flat)
        for t, output in zip(tensor_list, outputs):
            _store(t, output)

    return _run(found, [flat, *outputs], do, async_op, [tensor_list])


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """`output_tensor` becomes the tensors of all, one after the other."""
    _check(output_tensor, "output_tensor")
    _check(input_tensor, "input_tensor")
    found = member(group)
    if found is None:
        return None
    if output_tensor.numel() != input_tensor.numel() * found.size() or output_tensor.dtype != input_tensor.dtype:
        raise RuntimeError(
            f"output_tensor has {output_tensor.numel()} elements of {output_tensor.dtype}; expected the input's "
            f"{input_tensor.numel()} times {found.size()} of {input_tensor.dtype}"
        )
    flat, output = _flat(input_tensor), _flat(output_tensor)

    def do(transport: Any) -> None:
        transport.all_gather(list(output.reshape(found.size(), -1)), flat)
        _store(output_tensor, output)

    return _run(found, [flat, output], do, async_op, [output_tensor])


def gather(
    tensor: Tensor,
    gather_list: list[Tensor] | None = None,
    dst: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """`gather_list[r]` of process `dst` becomes the tensor of rank r; the others give no list."""
    _check(tensor, "tensor")
    found = member(group)
    if found is None:
        return None
    root = _rank(found, dst, group_dst)
    if found.rank() == root:
        if gather_list is None:
            raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
        _check_list(gather_list, "gather_list", found.size())
        _same(gather_list, tensor)
    elif gather_list:
        raise ValueError("Argument ``gather_list`` must NOT be specified on non-destination ranks.")
    flat, outputs = _flat(tensor), [_flat(t) for t in gather_list or ()]

    def do(transport: Any) -> None:
        transport.gather(outputs if found.rank() == root else None, flat, root)
        for t, output in zip(gather_list or (), outputs):
            _store(t, output)

    return _run(found, [flat, *outputs], do, async_op, [gather_list])


def scatter(
    tensor: Tensor,
    scatter_list: list[Tensor] | None = None,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """`tensor` of rank r becomes `scatter_list[r]` of process `src`; the others give no list."""
    _check(tensor, "tensor")
    found = member(group)
    if found is None:
        return None
    root = _rank(found, src, group_src)
    if found.rank() == root:
        if scatter_list is None:
            raise ValueError("Argument ``scatter_list`` must be specified on source rank.")
        _check_list(scatter_list, "scatter_list", found.size())
        _same(scatter_list, tensor)
    elif scatter_list:
        raise ValueError("Argument ``scatter_list`` must NOT be specified on non-source ranks.")
    output, pieces = _flat(tensor), [_flat(t) for t in scatter_list or ()]

    def do(transport: Any) -> None:
        transport.scatter(output, pieces if found.rank() == root else None, root)
        _store(tensor, output)

    return _run(found, [output, *pieces], do, async_op, [tensor])


def reduce_scatter(
    output: Tensor, input_list: list[Tensor], op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """`output` of rank r becomes the combination of everybody's `input_list[r]`."""
    _check_op(op)
    _check(output, "output")
    found = member(group)
    if found is None:
        return None
    _check_list(input_list, "input_list", found.size())
    flat, pieces = _flat(output), [_flat(t) for t in input_list]
    _same([input_list[found.rank()]], output)

    def do(transport: Any) -> None:
        transport.reduce_scatter(flat, pieces, op)
        _store(output, flat)

    return _run(found, [flat, *pieces], do, async_op, [output])


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """`output` of rank r becomes the combination of everybody's r-th part of `input`."""
    _check_op(op)
    _check(output, "output")
    _check(input, "input")
    found = member(group)
    if found is None:
        return None
    if input.numel() != output.numel() * found.size() or input.dtype != output.dtype:
        raise RuntimeError(
            f"input has {input.numel()} elements of {input.dtype}; expected the output's {output.numel()} times "
            f"{found.size()} of {output.dtype}"
        )
    flat, pieces = _flat(output), list(_flat(input).reshape(found.size(), -1))

    def do(transport: Any) -> None:
        transport.reduce_scatter(flat, pieces, op)
        _store(output, flat)

    return _run(found, [flat, *pieces], do, async_op, [output])


def all_to_all(
    output_tensor_list: list[Tensor], input_tensor_list: list[Tensor], group: Any = None, async_op: bool = False
) -> Work | None:
    """`output_tensor_list[r]` of rank q becomes `input_tensor_list[q]` of rank r."""
    found = member(group)
    if found is None:
        return None
    _check_list(output_tensor_list, "output_tensor_list", found.size())
    _check_list(input_tensor_list, "input_tensor_list", found.size())
    outputs, pieces = [_flat(t) for t in output_tensor_list], [_flat(t) for t in input_tensor_list]

    def do(transport: Any) -> None:
        transport.all_to_all(outputs, pieces)
        for t, output in zip(output_tensor_list, outputs):
            _store(t, output)

    return _run(found, [*outputs, *pieces], do, async_op, [output_tensor_list])


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """`all_to_all` of parts of one tensor: equal ones, or with the given numbers of rows."""
    _check(output, "output")
    _check(input, "input")
    found = member(group)
    if found is None:
        return None

    def parts(tensor: Tensor, flat: Any, sizes: list[int] | None, name: str) -> list[Any]:
        rows = tensor.shape[0] if tensor.dim() else 1
        if not sizes:
            if rows % found.size():
                raise RuntimeError(f"`{name}` has {rows} rows, which {found.size()} processes cannot share evenly")
            sizes = [rows // found.size()] * found.size()
        if len(sizes) != found.size() or sum(sizes) != rows:
            raise RuntimeError(f"Split sizes {sizes} do not match {rows} rows of `{name}` and {found.size()} processes")
        row = flat.size // rows if rows else 0
        return np.split(flat, np.cumsum([size * row for size in sizes[:-1]]))

    flat = _flat(output)
    outputs = parts(output, flat, output_split_sizes, "output")
    pieces = parts(input, _flat(input), input_split_sizes, "input")

    def do(transport: Any) -> None:
        transport.all_to_all(outputs, pieces)
        _store(output, flat)

    return _run(found, [*outputs, *pieces], do, async_op, [output])


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    """Return when all processes have called it."""
    found = member(group)
    return None if found is None else found.run(found.transport.barrier, async_op)


def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
    """`barrier`; its error names the rank that did not come."""
    barrier(group)


# --- from one to one


def _message(
    tensor: Tensor, peer: int | None, group: Any, tag: int, in_group: int | None
) -> tuple[ProcessGroup, int | None, Any] | None:
    _check(tensor, "tensor")
    found = member(group)
    if found is None:
        return None
    rank = None if peer is None and in_group is None else _rank(found, peer, in_group)
    return found, rank, _flat(tensor)


def isend(
    tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None
) -> Work | None:
    """Send `tensor` to `dst`; the Work has ended when it may be written to again."""
    message = _message(tensor, dst, group, tag, group_dst)
    if message is None:
        return None
    found, to, flat = message
    if to == found.rank():
        raise ValueError(
            "Invalid destination rank: destination rank should not be the same as the rank of the current process."
        )
    if found.over(tensor.device.type) is found.of_gpus:
        return found.queue([flat], lambda: found.of_gpus.send(flat, to, tag), True, [tensor])
    return _in_thread(lambda: found.transport.send(flat, to, tag), found, [tensor])


def irecv(
    tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None
) -> Work | None:
    """Receive into `tensor` from `src`, or from anyone."""
    message = _message(tensor, src, group, tag, group_src)
    if message is None:
        return None
    found, source, flat = message

    transport = found.over(tensor.device.type)

    def do() -> int:
        rank: int = transport.recv(flat, source, tag)
        _store(tensor, flat)
        return found.ranks[rank]

    if transport is found.of_gpus:
        work = found.queue([flat], do, True, [tensor])
        assert work is not None
        work._source = -1 if source is None else found.ranks[source]
        return work
    return _in_thread(do, found, [tensor])


def _in_thread(do: Callable[[], Any], found: ProcessGroup, result: Any) -> Work:
    """Messages do not wait for the group's collective calls, nor for each other."""
    work = Work()
    work._result = result

    def act() -> None:
        try:
            source = do()
            work._source = -1 if source is None else source
            work._finish(None)
        except BaseException as error:
            work._finish(error)

    if getattr(found.transport, "threads", True):
        threading.Thread(target=act, daemon=True, name="message").start()
    else:
        act()
    return work


def send(tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None) -> None:
    """Send `tensor` to `dst`; returns when it may be written to again."""
    work = isend(tensor, dst, group, tag, group_dst)
    if work is not None:
        work.wait()


def recv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> int:
    """Receive into `tensor` from `src`, or from anyone; who it was."""
    work = irecv(tensor, src, group, tag, group_src)
    if work is None:
        return -1
    work.wait()
    return work.source_rank()


class P2POp:
    """A message for `batch_isend_irecv`: `op` is `isend` or `irecv`."""

    def __init__(
        self,
        op: Callable[..., Any],
        tensor: Tensor,
        peer: int | None = None,
        group: Any = None,
        tag: int = 0,
        group_peer: int | None = None,
    ) -> None:
        if op not in (isend, irecv):
            raise ValueError(
                "Invalid ``op``. Expected ``op`` to be of type ``torch.distributed.isend`` or "
                "``torch.distributed.irecv``."
            )
        _check(tensor, "tensor")
        self.op, self.tensor, self.peer, self.group, self.tag, self.group_peer = (
            op,
            tensor,
            peer,
            group,
            tag,
            group_peer,
        )


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Work]:
    """Start all messages; their Works."""
    first = member(p2p_op_list[0].group) if p2p_op_list else None
    if first is not None and first.of_gpus is not None and p2p_op_list[0].tensor.is_cuda:
        return [_batch_on_gpus(first, p2p_op_list)]
    works = [p.op(p.tensor, p.peer, p.group, p.tag, p.group_peer) for p in p2p_op_list]
    return [work for work in works if work is not None]


def _batch_on_gpus(found: ProcessGroup, messages: list[P2POp]) -> Work:
    """All messages of a batch in one group of NCCL's; those of one process may go both ways."""
    flats = [_flat(p.tensor) for p in messages]

    def do() -> None:
        with found.of_gpus.grouped():
            for p, flat in zip(messages, flats):
                rank = _rank(found, p.peer, p.group_peer)
                (found.of_gpus.send if p.op is isend else found.of_gpus.recv)(flat, rank, p.tag)
        for p, flat in zip(messages, flats):
            if p.op is irecv:
                _store(p.tensor, flat)

    work = found.queue(flats, do, True, [p.tensor for p in messages])
    assert work is not None
    return work


# --- objects


def _sendable(found: ProcessGroup, array: Any) -> Tensor:
    """An array of the host as a tensor that the group can carry."""
    tensor = Tensor._from_array(array)
    return tensor.cuda() if found.transport is found.of_gpus else tensor


def _pickled(found: ProcessGroup, value: Any) -> Tensor:
    return _sendable(found, np.frombuffer(bytearray(pickle.dumps(value)), np.uint8))


def _bytes(found: ProcessGroup, count: int) -> Tensor:
    return _sendable(found, np.zeros(count, np.uint8))


def _unpickled(data: Tensor, count: int) -> Any:
    return pickle.loads(data.cpu()._array[:count].tobytes())  # of a process of this job: as much trusted as this one


def _lengths(found: ProcessGroup, own: int) -> list[int]:
    rows = [_sendable(found, np.zeros(1, np.int64)) for _ in range(found.size())]
    all_gather(rows, _sendable(found, np.array([own], np.int64)), found)
    return [int(row.item()) for row in rows]


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """`object_list[r]` becomes the object of rank r (pickled)."""
    found = member(group)
    if found is None:
        return
    data = _pickled(found, obj)
    lengths = _lengths(found, data.numel())
    padded = _bytes(found, max(lengths))
    padded[: data.numel()].copy_(data)
    outputs = [_bytes(found, max(lengths)) for _ in lengths]
    all_gather(outputs, padded, group)
    for r, (output, length) in enumerate(zip(outputs, lengths)):
        object_list[r] = _unpickled(output, length)


def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: Any = None,
    group_dst: int | None = None,
) -> None:
    """`object_gather_list[r]` of process `dst` becomes the object of rank r."""
    found = member(group)
    if found is None:
        return
    root = _rank(found, dst, group_dst)
    everything = [None] * found.size()
    all_gather_object(everything, obj, group)
    if found.rank() == root:
        if object_gather_list is None:
            raise ValueError("Argument ``object_gather_list`` must be specified on destination rank.")
        object_gather_list[:] = everything


def broadcast_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
) -> None:
    """The objects of the list become those of process `src`."""
    found = member(group)
    if found is None:
        return
    root = _rank(found, src, group_src)
    mine = found.rank() == root
    data = _pickled(found, list(object_list)) if mine else _bytes(found, 0)
    length = _lengths(found, data.numel())[root]
    data = data if mine else _bytes(found, length)
    broadcast(data, group=group, group_src=root)
    if not mine:
        object_list[:] = _unpickled(data, length)


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: Any = None,
    group_src: int | None = None,
) -> None:
    """The first element of the output list becomes this rank's object of the input list of `src`."""
    found = member(group)
    if found is None:
        return
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise ValueError("Expected argument scatter_object_output_list to be a list of size at least 1.")
    root = _rank(found, src, group_src)
    everything: list[Any] = [scatter_object_input_list if found.rank() == root else None]
    broadcast_object_list(everything, group=group, group_src=root)
    scatter_object_output_list[0] = everything[0][found.rank()]


def send_object_list(
    object_list: list[Any],
    dst: int | None = None,
    group: Any = None,
    device: Any = None,
    group_dst: int | None = None,
) -> None:
    """Send the objects to `dst`."""
    found = member(group)
    if found is None:
        return
    data = _pickled(found, list(object_list))
    length = _sendable(found, np.array([data.numel()], np.int64))
    send(length, dst, group, group_dst=group_dst)
    send(data, dst, group, group_dst=group_dst)


def recv_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
) -> int:
    """The list becomes the objects that `src` sent; who it was."""
    found = member(group)
    if found is None:
        return -1
    length = _sendable(found, np.zeros(1, np.int64))
    rank = recv(length, src, group, group_src=group_src)
    count = int(length.item())
    data = _bytes(found, count)
    recv(data, rank, group)
    object_list[:] = _unpickled(data, count)
    return rank
