"""T.print, T.device_assert and ``assert``: statements that are for people, kept in debug builds alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from os.path import basename
from typing import Any

from tilec.errors import SourceAssertionError, SourceTypeError, SourceValueError
from tilec.ir import nodes as ir
from tilec.ir.analysis.pruned import pruned
from tilec.ir.nodes.threads import PER_THREAD, WARP
from tilec.language.control.branches import Branch
from tilec.language.control.loops import Nest, Parallel, serial
from tilec.language.threads.indices import linear_index
from tilec.language.threads.launches import current_launch
from tilec.language.tiles.memory.buffers import Buffer, Element
from tilec.language.values.conversions import condition
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.places import loc, source_error
from tilec.language.values.operands import wrap
from tilec.language.values.value import Value, is_number, resolve

#: Threads of a warp group.
_GROUP = 4 * WARP


def print_(obj: Any = None, msg: str = "", warp_group_id: int = 0, warp_id: int = 0) -> None:
    """``T.print(obj, msg)``: a line with the indices of the block (on a GPU, of the thread too), the message
    and the value, from every thread that gets here; of a buffer a line per element, each once. Without
    ``obj`` the message alone. Where the kernel uses thread indices, the first thread of that warp prints
    shared and global memory; elsewhere the thread that has an element does. Raises `SourceValueError` for
    other objects and for nothing to print, `SourceTypeError` for other messages."""
    if not isinstance(msg, str):
        raise source_error(
            SourceTypeError,
            f"T.print does not take the message {msg!r}",
            construct="T.print",
            remedy="give what is printed first and a text behind it: T.print(x, 'x')",
        )
    obj, head = resolve(obj), f"{_escaped(msg)}: " if msg else ""
    if isinstance(obj, Buffer):
        return _print_buffer(obj, head, warp_group_id * _GROUP + warp_id * WARP)
    if obj is None and msg:
        return _line(_escaped(msg))
    if isinstance(obj, Value) or is_number(obj):
        return _line(f"{head}{_escaped(_title(obj))} = {{}}", wrap(obj))
    what = "nothing" if obj is None else type(obj).__name__
    raise source_error(
        SourceValueError,
        f"T.print does not take {what}",
        construct="T.print",
        remedy="print an expression, a buffer, or a message: T.print(msg='here')",
    )


def _title(value: Any) -> str:
    if isinstance(value, Element) and value.reference:
        return value.buffer.name
    return repr(value)


def _print_buffer(buffer: Buffer, head: str, printer: int) -> None:
    """Every element with its indices, once. A thread's own memory one after the other, and so shared and
    global memory where the kernel has threads of its own: thread ``printer`` does it there. Others are
    printed by whichever thread has the element."""
    shared = buffer.scope().startswith(("shared", "global"))
    if shared and current_launch("T.print").names_threads:
        branch = Branch(sessions.builder("T.print"), linear_index("T.print") == printer)
        if branch.then():
            _print_elements(buffer, head, [serial(extent) for extent in buffer.shape])
        return branch.close()
    private = buffer.scope() in PER_THREAD
    loops = [serial(extent) for extent in buffer.shape] if private else [Parallel(*buffer.shape)]
    return _print_elements(buffer, head, loops)


def _print_elements(buffer: Buffer, head: str, loops: Sequence[Nest]) -> None:
    found: list[Any] = []
    for loop in loops:
        opened = loop.open()
        found += opened if isinstance(opened, tuple) else [opened]
    places = ", ".join(["{}"] * len(found))
    indices = tuple(index.expr for index in found)
    _line(f"{head}{buffer.name}[{places}]: {buffer.dtype} = {{}}", *found, buffer.element(indices))
    for loop in reversed(loops):
        loop.close()


def _line(text: str, *values: Value) -> None:
    """Add the statement, the block's indices in front."""
    builder = sessions.builder("T.print")
    kernel = builder.kernel
    blocks = () if kernel is None else tuple(kernel.launch.vars)
    where = f"block ({', '.join(['{}'] * len(blocks))}) "
    found = (*blocks, *(value.expr for value in values))
    builder.emit(ir.Print(where + text, found, loc=loc()), "T.print")


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def device_assert(cond: Any, msg: str = "", no_stack_info: bool = False) -> None:
    """``T.device_assert(cond, msg)``, also written ``assert cond, msg``: where ``cond`` is false the call
    fails with the message and the line, and a GPU traps. What is known to be false while building
    is an error then (`SourceAssertionError`), what is known to be true adds nothing."""
    cond = resolve(cond)
    known = sessions.prove(cond.expr) if isinstance(cond, Value) else bool(cond)
    if known is False:
        raise source_error(
            SourceAssertionError,
            f"assertion failed: {msg}" if msg else "assertion failed",
            construct="T.device_assert",
            why=f"{cond!r} is false for the dims, args and config at hand",
            remedy="correct the condition, or the values that the kernel is built with",
        )
    if known:
        return
    place = loc()
    where = "" if no_stack_info else f"{basename(place.file)}:{place.line}: "
    text = f"{where}assertion failed: {msg or repr(cond)}"
    check = ir.Check(condition(cond, "T.device_assert"), text, loc=place)
    sessions.builder("T.device_assert").emit(check, "T.device_assert")


def without_debugging(kernel: ir.Kernel) -> ir.Kernel:
    """The kernel as a release build has it: without checks, prints and the loops around nothing else."""
    return replace(kernel, body=pruned(kernel.body, ir.Check, ir.Print))


class Assert:
    """``with T.Assert(cond, msg):`` or ``T.Assert(cond, msg)`` alone: `device_assert` at this place."""

    def __init__(self, cond: Any, msg: str = "") -> None:
        device_assert(cond, msg)

    def __enter__(self) -> None:
        """The statement stands already."""

    def __exit__(self, *error: object) -> None:
        """Nothing to close."""
