"""Running kernels on the emulator beside the interpreter, and planting faults in their device code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from tvm import tirx
from tvm.ir import Call, StringImm

from tilec.backends.cuda.emit.entry import lower_kernel
from tilec.backends.pipeline import lower
from tilec.emulate import EmulatedKernel
from tilec.ir.guards import Guard
from tilec.ir.nodes import Kernel
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel
from tilec.language.frontend.elaborate import elaborate, load_entry
from tilec.lowering.lowered import LoweredKernel
from tilec.targets import parse_target
from tilec.trials.arrays import guarded
from tilec.trials.comparison import compare
from tilec.trials.facts import facts_of
from tilec.trials.oracle import Author, Oracle
from tilec.trials.shapes import cases

KERNELS = Path(__file__).parents[3] / "examples" / "kernels"
#: Blocks of a case that is quick.
MOST_BLOCKS = 12
SM80, SM90A = parse_target("sm_80"), parse_target("sm_90a")


def kernel_of(entry: str, dims: Mapping[str, Guard], args: Mapping[str, Any], **config: Any) -> Kernel:
    """A kernel of examples/kernels."""
    return elaborate(load_entry(entry, KERNELS), name="kernel", dims=dims, args=args, config=config)


def elaborated(entry: Any) -> Kernel:
    """The kernel of an entry without dims, arguments and config; its text parses back."""
    kernel = elaborate(entry, name="kernel", dims={}, args={}, config={})
    assert format_kernel(parse_kernel(format_kernel(kernel))) == format_kernel(kernel)
    return kernel


def lowered(kernel: Kernel, name: str = "sm_100a") -> LoweredKernel:
    """A kernel as device code of a target is written from it."""
    target = parse_target(name)
    return lower_kernel(lower(kernel, target), target)


def roads(made: LoweredKernel) -> str:
    """What its launches tell of their statements, a line each."""
    return "\n".join(str(road) for launch in made.launches for road in launch.roads)


class Beside:
    """A kernel on the emulator, or on what ``run`` is, with the interpreter, or its author's reference,
    beside it."""

    def __init__(
        self,
        kernel: Kernel,
        target: Any,
        author: Author | None = None,
        lowered: LoweredKernel | None = None,
        tiles: frozenset[int] = frozenset(),
        run: Any = None,
    ) -> None:
        self.facts = facts_of(kernel, target.name, tiles)
        self.emulated = run or EmulatedKernel(kernel, target, lowered=lowered)
        self.oracle = Oracle(self.facts, author or Author())

    def cases(self, count: int) -> Iterator[dict[str, int]]:
        """Dims of few blocks for which the kernel is defined, the smallest first."""
        variant = self.facts.variants[0]
        few = (dims for number, dims in enumerate(islice(cases(self.facts, variant, 0), 40))
               if number == 0 or self.emulated.blocks(dims) <= MOST_BLOCKS)  # fmt: skip
        found = (dims for dims in few if not self.oracle.expect(variant, dims, 1).problem)
        yield from islice(found, count)

    def run(self, dims: Mapping[str, int]) -> list[str]:
        """What is wrong with the outputs."""
        expected = self.oracle.expect(self.facts.variants[0], dims, 1)
        assert not expected.problem, expected.problem
        arrays = {param.name: guarded(param, dims) for param in self.facts.tensors}
        for name, each in arrays.items():
            if name in expected.values:
                each.array[...] = expected.values[name]
        names = [param.name for param in self.facts.params]
        args = [arrays[name].array if name in arrays else expected.values[name] for name in names]
        self.emulated(args, dims)
        problems = []
        for param in self.facts.tensors:
            found = arrays[param.name]
            if param.is_written:
                problems.append(compare(param.name, found.array, expected.outputs[param.name],
                                        self.oracle.tolerance(self.facts.variants[0])).text)  # fmt: skip
            problems.append("" if found.intact() else f"memory around {param.name} was written")
        return [problem for problem in problems if problem]


# ---- faults ----


def edited(kernel: Kernel, target: Any, change: Callable[[Any], Any]) -> LoweredKernel:
    """The lowered kernel with ``change(stmt)`` in place of each statement for which it is not None."""
    made = lower_kernel(lower(kernel, target), target, marks=True)
    launches = tuple(
        replace(launch, func=_with_body(launch.func, rewritten(launch.func.body, change)))
        for launch in made.launches
    )
    return replace(made, launches=launches)


def _with_body(func: Any, body: Any) -> Any:
    return tirx.PrimFunc(func.params, body, attrs=func.attrs)


def rewritten(stmt: Any, change: Callable[[Any], Any]) -> Any:
    """A statement with some of its parts replaced, outermost first."""
    new = change(stmt)
    if new is not None:
        return new
    if isinstance(stmt, tirx.SeqStmt):
        return tirx.SeqStmt([rewritten(part, change) for part in stmt.seq])
    if isinstance(stmt, tirx.AttrStmt):
        return tirx.AttrStmt(stmt.node, stmt.attr_key, stmt.value, rewritten(stmt.body, change))
    if isinstance(stmt, tirx.For):
        return tirx.For(stmt.loop_var, stmt.min, stmt.extent, stmt.kind, rewritten(stmt.body, change))
    if isinstance(stmt, tirx.While):
        return tirx.While(stmt.condition, rewritten(stmt.body, change))
    if isinstance(stmt, tirx.IfThenElse):
        other = None if stmt.else_case is None else rewritten(stmt.else_case, change)
        return tirx.IfThenElse(stmt.condition, rewritten(stmt.then_case, change), other)
    return stmt


NOTHING = tirx.Evaluate(tirx.const(0))


def call_name(stmt: Any) -> str:
    """What a statement calls, with its texts: "tirx.ptx.mma sync.aligned..."."""
    if not isinstance(stmt, tirx.Evaluate) or not isinstance(stmt.value, Call):
        return ""
    texts = [str(arg.value) for arg in stmt.value.args if isinstance(arg, StringImm)]
    return " ".join([str(getattr(stmt.value.op, "name", "")), *texts])


def without(kernel: Kernel, target: Any, text: str, which: int = 0) -> LoweredKernel:
    """The lowered kernel without call number ``which`` of those whose name has ``text``."""
    return replacing(kernel, target, text, lambda stmt: NOTHING, which)


def replacing(
    kernel: Kernel, target: Any, text: str, change: Callable[[Any], Any], which: int | None = 0
) -> LoweredKernel:
    """The lowered kernel with one call (or all) whose name has ``text`` replaced by ``change(stmt)``."""
    count = iter(range(10**6))

    def changed(stmt: Any) -> Any:
        if text not in call_name(stmt):
            return None
        number = next(count)
        return change(stmt) if which in (None, number) else None

    made = edited(kernel, target, changed)
    assert next(count) > (which or 0), f"no call of {text}"
    return made


def with_args(stmt: Any, change: Callable[[list[Any]], list[Any]]) -> Any:
    """A call with other arguments."""
    call = stmt.value
    return tirx.Evaluate(Call(call.op, change(list(call.args)), ret_ty=call.ty))
