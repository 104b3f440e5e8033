"""Foreign code: functions of imported C source, or of the device's own libraries, called by name.

A call for its effect is a store to a variable that nobody reads, so that it stays where it stands; memory
that it may write is stored to itself around it, which says so to everything that looks at statements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilec.errors import SourceTypeError
from tilec.language.tiles.memory.allocations import alloc_var
from tilec.language.tiles.memory.buffers import Buffer, Element, Handle, Slice
from tilec.language.tiles.memory.element_pointers import ElementPointer, access_ptr
from tilec.language.values.conversions import tirx_function
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.namespace import namespace
from tilec.language.values.kernel.places import source_error, unsupported
from tilec.language.values.operands import wrap
from tilec.language.values.scalars import dtype as make_dtype
from tilec.language.values.value import Value

#: What authors call no result.
_NOTHING = ("handle", "void")


def import_source(source: str | None = None) -> None:
    """A text that is compiled with the kernel: as C for CPUs, as CUDA C++ for GPUs; ``None`` does nothing.
    What it includes must be there for the compiler."""
    if source is None:
        return
    session = sessions.current("T.import_source")
    session.imported = f"{session.imported}{source}\n" if source not in session.imported else session.imported


def tvm_access_ptr(kind: Any, data: Any, offset: Any, extent: Any, rw_mask: int) -> ElementPointer:
    """`T.access_ptr` in TVM's order: ``data`` is ``buffer.data``; mask 1 reads, 2 writes, 3 does both."""
    if not isinstance(data, Handle):
        raise source_error(
            SourceTypeError,
            "T.tvm_access_ptr takes buffer.data as its second argument",
            remedy='write T.access_ptr(A[i], "r")',
        )
    access = {1: "r", 2: "w"}.get(int(rw_mask), "rw")
    return access_ptr(data.buffer, access, offset=offset)


def call_extern(dtype: Any, name: str, *args: Any) -> Any:
    """A call of a function of imported source for its effect, or for its value if ``dtype`` is no handle."""
    returns = "void" if str(dtype) in _NOTHING else str(make_dtype(dtype))
    kind = "int32" if returns == "void" else returns
    call = tirx_function("call_extern")(kind, name, returns, *map(_argument, args), _source())
    targets = [arg.element() for arg in args if isinstance(arg, ElementPointer) and "w" in arg.access]
    _touch(targets)
    if returns == "void":
        alloc_var("int32").store(Value(call))
        result = None
    else:
        result = sessions.builder("T.call_extern").bind("called", Value(call))
    _touch(targets)
    return result


def call_pure_extern(dtype: Any, name: str, *args: Any) -> Value:
    """The value of a function without effect, of imported source or one of CUDA's own."""
    kind = str(make_dtype(dtype))
    if _source():
        return Value(tirx_function("call_extern")(kind, name, kind, *map(_argument, args), _source()))
    return Value(tirx_function("call_pure_extern")(kind, name, *map(_argument, args)))


def call_intrin(dtype: Any, op: Any, *args: Any) -> Any:
    """A function of the T namespace by its name; other names are refused."""
    T = namespace()
    name = str(getattr(op, "name", op)).removeprefix("tirx.").removeprefix("tir.")
    known = T._NAMES.get(name) or getattr(T, "__dict__", {}).get(name)
    if not callable(known):
        raise unsupported(f"T.call_intrin of {name}", remedy="use a function of the T namespace")
    return known(*args)


def _source() -> str:
    return sessions.current("T.call_extern").imported


def _argument(arg: Any) -> Any:
    from tilec.ir.foreign import ADDRESS

    if isinstance(arg, ElementPointer):
        return tirx_function("call_pure_extern")("int64", ADDRESS, _in_memory(arg).expr)
    if isinstance(arg, (Buffer, Slice, Handle)):
        raise source_error(
            SourceTypeError,
            "a buffer is no argument of a foreign function",
            remedy="give T.address_of(A[i]) or T.access_ptr(A, 'r')",
        )
    return wrap(arg).expr


def _in_memory(pointer: ElementPointer) -> Element:
    """The element, which must have an address."""
    if pointer.buffer.scope() == "local.fragment":
        raise unsupported(
            f"the address of an element of {pointer.buffer.name}",
            why="the elements of a fragment lie in registers of several threads",
            remedy="use T.alloc_local, or a shared tile",
        )
    return pointer.element()


def _touch(elements: list[Element]) -> None:
    """Says that memory from these elements on is written here."""
    for element in elements:
        element.touch()


#: Every function of this module that the T namespace offers, by name.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (import_source, tvm_access_ptr, call_extern, call_pure_extern, call_intrin)
}
