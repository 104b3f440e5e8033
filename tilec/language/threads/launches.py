"""T.Kernel and what asks about the launch."""

from __future__ import annotations

from typing import Any

from tilec.errors import SourceRuntimeError, SourceTypeError, SourceValueError
from tilec.ir import nodes as ir
from tilec.ir.schedule import Schedule
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.builder import Builder, Frame
from tilec.language.values.kernel.places import source_error, unsupported
from tilec.language.values.operand_errors import FOR_A_WHOLE
from tilec.language.values.operands import expression
from tilec.language.values.value import Value, as_int, resolve

DEFAULT_THREADS = 128
#: Block indices have 32 bits.
MOST_BLOCKS = (1 << 31) - 1
_AXES = ("bx", "by", "bz")
_THREAD_AXES = ("tx", "ty", "tz")


class BlockIndex(Value):
    """An index of the block; the only one of a grid may be taken as ``bx`` or as ``(bx,)``."""

    __slots__ = ()


class Kernel:
    """``with T.Kernel(gx, gy, gz, threads=...) as (bx, by, bz)``: one grid of independent blocks.

    Up to 3 extents, x fastest; ``threads`` an int or up to three (default 128). Yields one block index for
    one extent, else a list; a kernel without extents is one block, and its list is empty. ``cluster_dims``
    and ``is_cpu`` change no result."""

    def __init__(
        self,
        *blocks: Any,
        threads: Any = None,
        prelude: str | None = None,
        cluster_dims: Any = None,
        is_cpu: bool = False,
    ) -> None:
        if prelude:
            raise unsupported("T.Kernel(prelude=...)", remedy="write the code in the kernel language")
        if len(blocks) > 3:
            raise source_error(
                SourceValueError,
                f"T.Kernel takes up to 3 grid extents, got {len(blocks)}",
                construct="T.Kernel",
                remedy="fold further axes into one: by = i // n, bz = i % n",
            )
        self.blocks = tuple(resolve(block) for block in blocks) or (1,)
        self._count = len(blocks)
        self.threads = _threads(threads)
        self.names: tuple[str, ...] = ()
        self.vars: tuple[Any, ...] = ()
        self._thread_vars: tuple[Any, ...] = ()
        self._asked = {"cluster_dims": _frozen(cluster_dims)} if cluster_dims else {}
        self.cluster = _threads(cluster_dims or 1, "cluster_dims", "cluster shape")
        self._frame: Frame | None = None

    def __enter__(self) -> Any:
        from tvm import tirx

        if sessions.current("T.Kernel").is_discovery:
            raise sessions.ReachedKernel
        builder = sessions.builder("T.Kernel")
        if builder.region() is not builder.frames[0]:  # loops over Python iterables are expanded
            raise source_error(
                SourceRuntimeError,
                "T.Kernel stands inside another region",
                construct="T.Kernel",
                why=f"it is inside the {builder.region().kind} region of line {builder.region().loc.line}",
                remedy="put T.Kernel blocks one after another at the top level",
            )
        self.extents = tuple(self._extent(block) for block in self.blocks)
        self._frame = builder.push("kernel")
        self._frame.launch = self
        self._frame.schedule.update(self._asked)
        names = self.names if len(self.names) == len(self.extents) else _AXES
        self.vars = tuple(tirx.Var(names[axis], "int32") for axis in range(len(self.extents)))
        self._learn()
        values = [BlockIndex(var, frame=self._frame) for var in self.vars]
        return values[0] if self._count == 1 else values[: self._count]

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if kind is not None:
            return
        from tilec.language.threads.thread_level import races, settle  # load TVM, which no import of T does

        frame = self._frame
        assert frame is not None
        builder = sessions.builder("T.Kernel")
        body = builder.pop(frame)
        schedule, threads = Schedule(**frame.schedule), self._thread_vars
        roads = (*builder.frames[0].roads, *frame.roads)
        launch = ir.Launch(
            self.extents, self.vars, self.threads, body, schedule, threads, roads, loc=frame.loc
        )
        launch = settle(launch)
        for store in races(launch):
            what = f"each thread updates {store.buffer.name}, and may see what others made of it"
            builder.warn_once(f"{what}: put it in T.Parallel(1), or under `if tx == 0`", store.loc)
        builder.launch(launch)

    @property
    def frame(self) -> Frame | None:
        """The region of the block's statements."""
        return self._frame

    @property
    def names_threads(self) -> bool:
        """Whether the code so far has asked for an index of its thread."""
        return bool(self._thread_vars)

    def thread_indices(self) -> tuple[Any, ...]:
        """The variables of the thread's index along x, y, z: from now on the launch has thread-level code."""
        from tvm import tirx
        from tvm.ir import Range

        if not self._thread_vars:
            self._thread_vars = tuple(tirx.Var(name, "int32") for name in _THREAD_AXES)
            analyzer = sessions.current("T.Kernel").analyzer
            for var, extent in zip(self._thread_vars, self.threads, strict=True):
                analyzer.bind(var, Range.from_min_extent(0, extent))
        return self._thread_vars

    def _extent(self, block: Any) -> Any:
        block = as_int(block)
        if isinstance(block, int) and not isinstance(block, bool):
            return _in_reach(int(block))
        if isinstance(block, Value) and block.dtype in ("int32", "int64"):
            known = sessions.constant(block.expr)
            return block.expr if known is None else _in_reach(known)
        raise source_error(
            SourceTypeError,
            f"grid extent {block!r} is neither an integer nor an integer expression",
            construct="T.Kernel",
            remedy=FOR_A_WHOLE,
        )

    def _learn(self) -> None:
        from tvm.ir import Range

        analyzer = sessions.current("T.Kernel").analyzer
        for var, extent in zip(self.vars, self.extents, strict=True):
            analyzer.bind(var, Range.from_min_extent(0, extent))


def _threads(threads: Any, name: str = "threads", what: str = "thread count") -> tuple[int, int, int]:
    given = DEFAULT_THREADS if threads is None else threads
    given = tuple(map(as_int, given if isinstance(given, (tuple, list)) else (given,)))
    if not 1 <= len(given) <= 3 or not all(isinstance(n, int) and n > 0 for n in given):
        raise source_error(
            SourceValueError,
            f"{name}={threads!r} is no {what}",
            construct="T.Kernel",
            remedy="give a positive integer or up to three of them",
        )
    x, y, z = (*map(int, given), 1, 1)[:3]
    return (x, y, z)


def current_launch(construct: str) -> Kernel:
    """The `T.Kernel` around; raises `SourceRuntimeError` outside of one."""
    builder: Builder = sessions.builder(construct)
    frame = builder.kernel
    if frame is None:
        raise source_error(
            SourceRuntimeError,
            f"{construct} stands outside a T.Kernel block",
            construct=construct,
            remedy="move it under `with T.Kernel(...)`",
        )
    launch: Kernel = frame.launch
    return launch


def schedule(construct: str, name: str, value: object) -> None:
    """Set a field of the schedule (`tilec.ir.schedule`) of the launch under way."""
    frame = current_launch(construct)._frame
    assert frame is not None
    frame.schedule[name] = value


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def get_thread_extent(dim: int = 0) -> int:
    """Threads of the block along one axis."""
    return current_launch("T.get_thread_extent").threads[dim]


def _in_reach(extent: int) -> int:
    """A number of blocks that an index of 32 bits counts."""
    if 0 <= extent <= MOST_BLOCKS:
        return extent
    raise source_error(
        SourceValueError,
        f"T.Kernel with a grid extent of {extent}",
        construct="T.Kernel",
        why=f"an axis of a grid has 0 to {MOST_BLOCKS} blocks",
        remedy="give a number of blocks; where it comes from a tile size, correct the config, where from a "
        "dim, its value in the manifest",
    )


def get_thread_extents() -> list[int]:
    """Threads of the block along x, y, z."""
    return list(current_launch("T.get_thread_extents").threads)


def get_block_binding(dim: int = 0) -> Value:
    """The block index along one axis of the grid."""
    launch = current_launch("T.get_block_binding")
    if dim >= len(launch.vars):
        return Value(expression(0))
    return Value(launch.vars[dim], frame=launch._frame)


def get_block_bindings() -> list[Value]:
    """The block indices, as many as the grid has axes."""
    return [get_block_binding(dim) for dim in range(len(current_launch("T.get_block_bindings").vars))]


def get_block_extent(dim: int = 0) -> Any:
    """The grid's extent along one axis, 1 for an absent one."""
    extents = current_launch("T.get_block_extent").extents
    if dim >= len(extents):
        return 1
    return extents[dim] if isinstance(extents[dim], int) else Value(extents[dim])


def get_block_extents() -> list[Any]:
    """The grid's extents."""
    return [get_block_extent(dim) for dim in range(len(current_launch("T.get_block_extents").vars))]
