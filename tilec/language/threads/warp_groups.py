"""Code of some warp groups alone, and the hints that describe such a split."""

from __future__ import annotations

from typing import Any

from tilec.errors import SourceTypeError, SourceValueError
from tilec.ir.nodes import barriers as ir
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.annotations import SCHEDULED_HERE, unheeded
from tilec.language.values.kernel.builder import Frame
from tilec.language.values.kernel.places import source_error, unsupported


class ws:
    """``with T.ws(0):`` (`T.WarpSpecialize`): only the named groups of 128 consecutive threads run the body;
    its tile operations are collective over them. Several groups follow each other: ``T.ws(0, 1)``."""

    def __init__(self, *groups: int) -> None:
        self.groups = tuple(sorted(set(map(_group, groups))))
        if not self.groups:
            raise source_error(
                SourceValueError,
                "T.ws needs at least one group",
                construct="T.ws",
                remedy="name groups of 128 threads: T.ws(0)",
            )
        if self.groups != tuple(range(self.groups[0], self.groups[-1] + 1)):
            raise unsupported(
                f"T.ws of the groups {', '.join(map(str, self.groups))}, which do not follow each other",
                remedy="give the groups that work together consecutive numbers",
            )
        self._frame: Frame | None = None

    def __enter__(self) -> None:
        builder = sessions.builder("T.ws")
        launch = None if builder.kernel is None else builder.kernel.launch
        if launch is not None:
            self._check(launch.threads)
        if any(frame.kind in ("parallel", "group") for frame in builder.frames):
            raise unsupported("T.ws inside T.ws or T.Parallel", remedy="put the T.ws blocks side by side")
        self._frame = builder.push("group")

    def _check(self, threads: tuple[int, int, int]) -> None:
        count = threads[0] * threads[1] * threads[2]
        if (self.groups[-1] + 1) * ir.WARPGROUP > count:
            raise source_error(
                SourceValueError,
                f"T.ws({self.groups[-1]}) of a block of {count} threads",
                construct="T.ws",
                why=f"group {self.groups[-1]} has the threads from {self.groups[-1] * ir.WARPGROUP} on",
                remedy=f"launch with threads={(self.groups[-1] + 1) * ir.WARPGROUP}",
            )

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if kind is not None:
            return
        frame = self._frame
        assert frame is not None
        builder = sessions.builder("T.ws")
        body = builder.pop(frame)
        first, count = self.groups[0] * ir.WARPGROUP, len(self.groups) * ir.WARPGROUP
        builder.emit(ir.Group(first, count, body, loc=frame.loc), "T.ws")


def _group(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise source_error(
            SourceTypeError,
            f"T.ws takes the numbers of groups, not {value!r}",
            construct="T.ws",
            remedy="name groups of 128 threads by build-time integers: T.ws(0)",
        )
    return int(value)


class Hint:
    """What describes a schedule and means nothing here: takes any arguments, attributes and keys, and works
    as a context manager."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Hint:
        """Itself; a loss of the launch where it is a statement."""
        if self._name in _STATEMENTS:
            unheeded(f"T.{self._name}", SCHEDULED_HERE, "leave the schedule of warps out")
        return self

    def __getitem__(self, key: Any) -> Hint:
        return self

    def __getattr__(self, name: str) -> Hint:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __enter__(self) -> Hint:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """Does nothing."""

    def __repr__(self) -> str:
        return f"<T.{self._name}, a hint>"


_STATEMENTS = ("ws_op", "annotate_ws_schedule", "annotate_ws_pipeline_depth")
_HINTS = (
    "ws_op",
    "WSSchedule",
    "WSRole",
    "WSPipeline",
    "WSInstr",
    "WSSync",
    "WSScope",
    "annotate_ws_schedule",
    "annotate_ws_pipeline_depth",
)
#: Accepted; they add nothing.
HINTS = {name: Hint(name) for name in _HINTS}
