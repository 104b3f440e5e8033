"""The threads of a block by index: what a statement of one thread asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilec.errors import SourceValueError
from tilec.ir.nodes import threads as ir
from tilec.ir.nodes.barriers import GridBarrier
from tilec.language.control.loops import Nest
from tilec.language.threads.launches import current_launch
from tilec.language.values.kernel.annotations import known_annotations
from tilec.language.values.kernel.places import loc, source_error, unsupported
from tilec.language.values.outside_parallel import emit_outside_parallel, outside_parallel
from tilec.language.values.value import Value

if TYPE_CHECKING:
    from tvm.ir import Expr


_AXES = {"threadIdx.x": 0, "threadIdx.y": 1, "threadIdx.z": 2}
_WARPS_PER_GROUP = 4


def get_thread_binding(dim: int = 0) -> Value:
    """The index of the thread along one axis of its block, int32."""
    launch = current_launch("T.get_thread_binding")
    if dim not in (0, 1, 2):
        raise source_error(
            SourceValueError,
            f"T.get_thread_binding({dim!r}): a block has the axes 0, 1 and 2",
            construct="T.get_thread_binding",
            remedy="ask for axis 0, 1 or 2",
        )
    return Value(launch.thread_indices()[dim], frame=launch.frame)


def get_thread_bindings() -> list[Value]:
    """The indices of the thread along x, y, z."""
    return [get_thread_binding(dim) for dim in range(3)]


def linear_index(construct: str) -> Any:
    """The number of the thread in its block, x fastest."""
    launch = current_launch(construct)
    x, y, z = launch.thread_indices()
    width, height, depth = launch.threads
    place: Expr = x
    place = place + y * width if height > 1 else place
    place = place + z * (width * height) if depth > 1 else place
    return Value(place, frame=launch.frame)


def get_lane_idx(warp_size: int | None = None) -> Value:
    """The place of the thread in its warp of ``warp_size`` (32) threads."""
    found: Value = linear_index("T.get_lane_idx") % _size("T.get_lane_idx", warp_size, ir.WARP)
    return found


def get_warp_idx(warp_size: int | None = None) -> Value:
    """The number of the thread's warp of ``warp_size`` (32) threads."""
    found: Value = linear_index("T.get_warp_idx") // _size("T.get_warp_idx", warp_size, ir.WARP)
    return found


def get_warp_group_idx(warp_size: int | None = None, warps_per_group: int | None = None) -> Value:
    """The number of the thread's group of ``warps_per_group`` (4) warps of ``warp_size`` (32) threads."""
    construct = "T.get_warp_group_idx"
    warps = _size(construct, warps_per_group, _WARPS_PER_GROUP)
    found: Value = linear_index(construct) // (warps * _size(construct, warp_size, ir.WARP))
    return found


def shuffle_elect(thread_extent: int) -> Value:
    """True in one of ``thread_extent`` consecutive threads, the first; 0 means the whole block."""
    place = linear_index("T.shuffle_elect")
    if thread_extent != 0:
        place = place % _size("T.shuffle_elect", thread_extent, 1)
    found: Value = place == 0
    return found


def thread_return() -> None:
    """Ends the threads that come here; the whole block where all do."""
    builder = outside_parallel("T.thread_return", remedy="use continue, or an if")
    builder.end_region(ir.Return(loc=loc()), "T.thread_return")


class ThreadLoop(Nest):
    """``for t in T.thread_binding(n)``: the body runs once in each thread, with its index as ``t``."""

    def open(self) -> Any:
        """The thread's index, from the loop's start on."""
        index, start = get_thread_binding(self.options["axis"]), self.options["start"]
        return index if start == 0 else index + start

    def close(self) -> None:
        """Nothing was opened."""


def thread_binding(
    start: Any, stop: Any = None, thread: str | None = None, *, annotations: Any = None
) -> ThreadLoop:
    """A loop over the threads along one axis of the block, as many as `T.Kernel` has there.

    ``T.thread_binding(128)``, ``T.thread_binding(0, 128, thread="threadIdx.y")``, or the axis as second
    argument; it is threadIdx.x unless it is given."""
    construct = "T.thread_binding"
    known_annotations(construct, annotations)
    if isinstance(stop, str):
        stop, thread = None, stop
    start, stop = (0, start) if stop is None else (start, stop)
    thread = thread or "threadIdx.x"
    if thread not in _AXES:
        raise unsupported(
            f"T.thread_binding to {thread!r}", remedy="loop over threadIdx.x, .y or .z; T.Kernel makes blocks"
        )
    axis = _AXES[thread]
    found = current_launch(construct).threads[axis]
    extent = int(stop) - int(start)
    if extent != found:
        raise source_error(
            SourceValueError,
            f"T.thread_binding of {extent} threads along {thread}: the block has {found} threads there",
            construct=construct,
            remedy=f"give T.Kernel(threads=...) {extent} threads along this axis, or loop over {found}",
        )
    return ThreadLoop(construct, "thread", (), (), (), {"axis": axis, "start": int(start)})


def sync_threads(barrier_id: int | None = None, arrive_count: int | None = None) -> None:
    """A barrier of the block; with ``barrier_id`` (1 to 15) and ``arrive_count`` (a multiple of 32) one of so
    many threads. Statements on tiles need none."""
    construct = "T.sync_threads"
    if barrier_id is None and arrive_count is None:
        return _sync("threads", construct)
    known = isinstance(barrier_id, int) and 1 <= barrier_id <= 15
    total = _total(current_launch(construct).threads)
    count = total if arrive_count is None else arrive_count
    if not known or not isinstance(count, int) or count % ir.WARP or not 0 < count <= total:
        raise source_error(
            SourceValueError,
            f"T.sync_threads({barrier_id!r}, {arrive_count!r})",
            construct=construct,
            why=f"a named barrier has a number from 1 to 15 and a multiple of {ir.WARP} threads",
            remedy="leave the arguments out for a barrier of the whole block",
        )
    return _sync("threads", construct, barrier_id, count)


def sync_warp(mask: Any = None) -> None:
    """A barrier of the warp, or of those of its lanes that ``mask`` names."""
    _sync("warp", "T.sync_warp")


def tvm_storage_sync(scope: str) -> None:
    """`sync_threads` for "shared", `sync_warp` for "warp"."""
    if scope not in ("shared", "shared.dyn", "warp"):
        raise unsupported(f"T.tvm_storage_sync({scope!r})", remedy='use "shared" or "warp"')
    _sync("warp" if scope == "warp" else "threads", "T.tvm_storage_sync")


def sync_grid() -> None:
    """A barrier of all blocks of the launch, which must fit the device at the same time (a cooperative
    launch): all see what each wrote before. CUDA alone; two T.Kernel in a row mean this everywhere."""
    emit_outside_parallel("T.sync_grid", GridBarrier(loc=loc()))


def _sync(kind: str, construct: str, barrier: int | None = None, count: int | None = None) -> None:
    emit_outside_parallel(construct, ir.Sync(kind, barrier, count, loc=loc()))


def _total(threads: tuple[int, int, int]) -> int:
    return threads[0] * threads[1] * threads[2]


def _size(construct: str, given: int | None, default: int) -> int:
    size = default if given is None else given
    if isinstance(size, int) and size > 0:
        return int(size)
    raise source_error(
        SourceValueError,
        f"{construct}: {given!r} is no number of threads",
        construct=construct,
        remedy="give a positive multiple of 32",
    )
