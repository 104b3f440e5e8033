"""Functions that authors write in CUDA C++ and inline assembly: read, and run over the lanes of a group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tilec.emulate.foreign.memory import Operand, Pointer, Scalar, element
from tilec.emulate.foreign.statements import Call
from tilec.emulate.foreign.syntax import Function, functions
from tilec.emulate.group import Group
from tilec.emulate.lanes import Lanes
from tilec.errors import UnsupportedError

#: What may wait for other warps.
_WAITING = ("bar.sync", "barrier.sync", "barrier.cluster.wait", "mbarrier.try_wait", "mbarrier.test_wait",
            "__syncthreads", "setmaxnreg.inc")  # fmt: skip


@dataclass(frozen=True)
class Foreign:
    """A function of an author."""

    function: Function
    others: dict[str, Function]
    waits: bool

    @property
    def params(self) -> tuple[str, ...]:
        """The dtype of each parameter, or "pointer"."""
        return tuple(
            "pointer" if kind.is_pointer or kind.is_reference else element(kind)[0]
            for kind, _ in self.function.params
        )

    @property
    def result(self) -> str:
        """The dtype of what it returns, or "void"."""
        return element(self.function.result)[0]

    def runner(self, dtypes: Sequence[str]) -> Callable[..., Any]:
        """What generated source calls, with arguments of ``dtypes``, those that pointers point to."""

        def run(g: Group, m: Any, *args: Any) -> Any:
            given = zip(args, dtypes, self.params, strict=True)
            operands = [_operand(arg, dtype, kind) for arg, dtype, kind in given]
            running = Call(self.function, self.others, Lanes(g, m)).run(operands)
            return running if self.waits else _finished(running, self.function.name)

        return run


def _operand(arg: Any, dtype: str, kind: str) -> Operand:
    return Pointer(arg, dtype) if kind == "pointer" and dtype != "map" else Scalar(arg, dtype)


def _finished(running: Any, name: str) -> Any:
    try:
        next(running)
    except StopIteration as ended:
        return ended.value.value if isinstance(ended.value, Scalar) else None
    raise UnsupportedError(f"the function {name} waits for other warps where the emulator does not see it")


@lru_cache(maxsize=1024)
def read(name: str, source: str) -> Foreign:
    """The function ``name`` of a source text."""
    found = functions(source)
    if name not in found:
        raise UnsupportedError(f"the function {name} is not in its source", why=source[:200])
    return Foreign(found[name].checked(), found, may_wait(source))


def may_wait(source: str) -> bool:
    """Whether something in a source text may wait for other warps."""
    return any(mark in source for mark in _WAITING)
