"""Raw addresses: ``T.ptr`` parameters, and the tensors that lie there (T.match_buffer, T.make_tensor).

A tensor whose extents follow from the dimensions and that is all the kernel makes of a pointer parameter *is*
that parameter. Every other one is a buffer at an address (`tilec.ir.nodes.SCOPES`), declared where it is made
or, on host level, at the start of the launches that use it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tilec.errors import SourceTypeError
from tilec.ir import nodes as ir
from tilec.language.tiles.memory.buffers import Buffer, Element
from tilec.language.tiles.parameters.signatures import (
    Declared,
    StridedTensor,
    Tensor,
    TensorType,
    declare,
    plain_entries,
)
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.access import read_by, written_by
from tilec.language.values.kernel.builder import is_variable
from tilec.language.values.kernel.places import loc, source_error, unsupported
from tilec.language.values.scalars import Pointer, check_storage
from tilec.language.values.value import Value, resolve, text_of

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.language.values.kernel.builder import Builder

#: ``p: T.ptr``: an address; ``T.Tensor(shape, T.ptr)``: a table of addresses, stored as int64.
ptr = handle = Pointer("handle")


class Address(Value):
    """A pointer parameter in use. ``escaped``: something other than `make_tensor` computes with it."""

    __slots__ = ("escaped", "name")

    def __init__(self, name: str) -> None:
        from tvm import tirx

        super().__init__(tirx.Var(name, "int64"))
        self.name = name
        self.escaped = False

    @property
    def expr(self) -> Expr:
        """The address as an int64."""
        self.escaped = True
        return self._expr

    @property
    def var(self) -> Any:
        """The variable, for what is made of it here."""
        return self._expr


@dataclass(frozen=True, eq=False)
class Pointed:
    """A tensor at an address, made where its shape follows from the dimensions."""

    declared: Declared
    address: Any
    loc: ir.Loc

    @property
    def alloc(self) -> ir.Alloc:
        """The declaration as a statement."""
        return _alloc(self.declared.buffer.var, self.address, self.loc)


def make_tensor(ptr: Any, shape: Any, dtype: Any = "float32", strides: Any = None) -> Buffer:
    """The tensor that lies at an address: a T.ptr parameter, an element of a table of addresses, or any int64
    expression. ``strides`` in elements, row-major by default."""
    address = resolve(ptr)
    if isinstance(address, Buffer):
        raise source_error(
            SourceTypeError,
            f"{address.name} is a tensor, not an address",
            construct="T.make_tensor",
            remedy=f"use {address.name} itself, or T.Tensor(shape, dtype, {address.name}.data)",
        )
    if not isinstance(address, Value) or _type(address) not in ("int64", "uint64"):
        raise source_error(
            SourceTypeError,
            f"{ptr!r} is no address",
            construct="T.make_tensor",
            remedy="annotate the parameter with T.ptr, or read from a T.Tensor(shape, T.ptr)",
        )
    kind = Tensor(shape, dtype) if strides is None else StridedTensor(shape, strides, dtype)
    builder = sessions.builder("T.make_tensor")
    name = builder.wish("tensor")
    if builder.kernel is None or (isinstance(address, Address) and _is_known(kind)):
        return _on_host(builder, name, kind, address)
    return _in_kernel(builder, name, kind, address)


def match_buffer(ptr: Any, shape: Any, dtype: Any = "float32", strides: Any = None, **others: Any) -> Buffer:
    """As `make_tensor`, under the older name; arguments beyond these are refused."""
    for key, value in others.items():
        raise unsupported(f"T.match_buffer({key}={value!r})", remedy="give shape, dtype and strides alone")
    return make_tensor(ptr, shape, dtype, strides)


def _type(address: Value) -> str:
    if isinstance(address, Element):  # not read here: host level does not
        return str(address.buffer.dtype)
    return "int64" if isinstance(address, Address) else str(address.dtype)


def _is_known(kind: TensorType) -> bool:
    """Whether all extents and strides follow from the dimensions."""
    entries = (*kind.shape, *(kind.strides or ()))
    return all(text_of(resolve(entry)) is not None for entry in entries)


def _on_host(builder: Builder, name: str, kind: TensorType, address: Value) -> Buffer:
    """For the whole kernel."""
    own = isinstance(address, Address) and address.name not in sessions.current(name).addresses
    declared = declare(name, kind, "global" if own else "global.address")
    builder.pointed.append(Pointed(declared, _source(address), loc()))
    return declared.buffer


def _source(address: Value) -> Any:
    """The expression of an address; a table is read in the launches."""
    if isinstance(address, Address):
        return address.var
    if isinstance(address, Element):
        from tvm import tirx

        return tirx.BufferLoad(address.buffer.var, list(address.indices))
    return address.expr


def _in_kernel(builder: Builder, name: str, kind: TensorType, address: Value) -> Buffer:
    """From here to the end of the region; extents are evaluated here."""
    from tvm import tirx

    if any(frame.kind in ("parallel", "vectorized") for frame in builder.frames):
        raise unsupported("T.make_tensor inside T.Parallel", remedy="make the tensor before the loop")
    check_storage(kind.dtype)
    shape = tuple(_evaluated(builder, entry, f"{name}_extent") for entry in kind.shape)
    strides = tuple(_evaluated(builder, entry, f"{name}_stride") for entry in kind.strides or ())
    var = tirx.decl_buffer(
        plain_entries(shape),
        str(kind.dtype),
        name,
        scope="global.address",
        strides=plain_entries(strides) or None,
    )
    builder.emit(_alloc(var, address.expr, loc()), "T.make_tensor")
    return Buffer(var, shape, strides=strides, frame=builder.region())


def _evaluated(builder: Builder, entry: Any, name: str) -> Any:
    """An extent that stays what it is: a number, a variable, or a new name for an expression."""
    value = resolve(entry)
    if isinstance(value, int) or is_variable(value.expr):
        return value
    return builder.bind(name, value)


def _alloc(buffer: Any, address: Expr, where: ir.Loc) -> ir.Alloc:
    from tvm import tirx

    wide = address if str(address.ty.dtype) == "int64" else tirx.Cast("int64", address)
    return ir.Alloc(buffer, wide, place="address", loc=where)


# ---- when the body has run ----


class PointerStaysAddress(Exception):
    """A kernel makes several tensors of a pointer parameter, or computes with it: it has to be traced again
    with the name among the session's ``addresses``."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


@dataclass(frozen=True, eq=False)
class AddressParam:
    """A pointer parameter while its kernel is traced."""

    name: str
    address: Address


def settle(builder: Builder, params: dict[str, Any], body: ir.Block) -> ir.Block:
    """Makes tensor parameters of pointers that are nothing else (``params`` change in place), and declares
    the other tensors of host level in the launches that use them; the new body. Raises
    `PointerStaysAddress`."""
    for name, param in params.items():
        if isinstance(param, AddressParam):
            params[name] = _settled(param, builder.pointed)
    apart = [found for found in builder.pointed if found.declared.buffer.scope() == "global.address"]
    return tuple(_with_tensors(stmt, apart) if isinstance(stmt, ir.Launch) else stmt for stmt in body)


def _settled(param: AddressParam, pointed: list[Pointed]) -> Declared | ir.ScalarParam:
    address = param.address
    made = [found.declared for found in pointed if found.address is address.var]
    if param.name not in sessions.current(param.name).addresses and (made or address.escaped):
        if len(made) != 1 or address.escaped:
            raise PointerStaysAddress(param.name)
        return replace(made[0], name=param.name, pointer=True)
    return ir.ScalarParam(param.name, address.var, pointer=True)


def _with_tensors(launch: ir.Launch, pointed: list[Pointed]) -> ir.Launch:
    used = [buffer for stmt in ir.walk(launch.body) for buffer in (*read_by(stmt), *written_by(stmt))]
    needed = [found for found in pointed if any(found.declared.buffer.memory.same_as(one) for one in used)]
    return replace(launch, body=(*(found.alloc for found in needed), *launch.body))
