"""Where the constants of an eager kernel come from: found by a run of its body up to the first T.Kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilec.errors import Place, SourceError, SourceRuntimeError, UnsupportedError
from tilec.ir.guards import Guard
from tilec.language.tiles.parameters.signatures import Declared
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.elaboration import Session
from tilec.language.values.kernel.session import ReachedKernel
from tilec.language.values.value import Value

if TYPE_CHECKING:
    from tilec.language.frontend.rewriting.capture import Captured


@dataclass(frozen=True)
class Bind:
    """A constant is the extent (or stride) of ``param`` along ``axis``. ``packed``: logical elements in one
    element as tensors store them, along the last axis of a dtype below 8 bits."""

    param: str
    axis: int
    is_stride: bool
    packed: int = 1


@dataclass(frozen=True)
class Found:
    """The constants in the order of their declarations, and where those come from that stand alone in some
    shape or stride. ``shapes``: a text per tensor parameter, for messages."""

    names: tuple[str, ...] = ()
    binds: Mapping[str, Bind] = field(default_factory=dict)
    shapes: tuple[str, ...] = ()

    @property
    def unbound(self) -> tuple[str, ...]:
        """The constants that no tensor shows."""
        return tuple(name for name in self.names if name not in self.binds)


#: The number at a place of the arguments; None where the argument is not there.
Numbers = Callable[[Bind], "int | None"]


def found_in(names: Iterable[str], params: Mapping[str, Any]) -> Found:
    """What declared parameters say of constants: shapes before strides, parameters in order."""
    constants = tuple(dict.fromkeys(names))
    tensors = [param for param in params.values() if isinstance(param, Declared)]
    binds: dict[str, Bind] = {}
    for is_stride in (False, True):
        for tensor in tensors:
            for text, bind in _places(tensor, is_stride):
                if text in constants:
                    binds.setdefault(text, bind)
    return Found(constants, binds, tuple(map(_shape, tensors)))


def _places(tensor: Declared, is_stride: bool) -> Iterator[tuple[str, Bind]]:
    for axis, text in enumerate((tensor.strides or ()) if is_stride else tensor.extents):
        packed = _packed(tensor, axis, is_stride)
        alone = text if packed == 1 else text.removesuffix(f" // {packed}")
        yield alone, Bind(tensor.name, axis, is_stride, packed)


def _packed(tensor: Declared, axis: int, is_stride: bool) -> int:
    bits = tensor.buffer.dtype.bits
    is_last = axis == len(tensor.extents) - 1
    return 8 // bits if bits < 8 and is_last and not is_stride else 1


def _shape(tensor: Declared) -> str:
    strides = "" if tensor.strides is None else f", strides ({', '.join(tensor.strides)})"
    return f"{tensor.name}: shape ({', '.join(tensor.extents)}){strides}"


def learn(session: Session, tensor: Any, numbers: Numbers) -> None:
    """Tells the analyzer the constants that a declared tensor shows, so that code behind it may ask."""
    from tvm.sym import ConstIntBound

    if not isinstance(tensor, Declared):
        return
    for text, bind in (*_places(tensor, False), *_places(tensor, True)):
        made = session.used.get(text)
        number = numbers(bind) if text in session.constants else None
        if number is not None and isinstance(made, Value):
            session.analyzer.update(made.expr, ConstIntBound(number, number), True)
            session.learned.add(text)


def discover(
    name: str,
    known: Mapping[str, int],
    run: Callable[[Session], Any],
    params: Mapping[str, Any],
    place: Place,
) -> Found:
    """The constants of a kernel whose declarations ``run`` fills ``params`` with; ``known`` are those that
    callers give by name. Raises `SourceRuntimeError` where the body needs a number before any annotation says
    where it comes from."""
    session = Session(name, {key: Guard(eq=value) for key, value in known.items()}, open_dims=True)
    session.is_discovery = True
    try:
        with sessions.elaborating(session):
            run(session)
    except ReachedKernel:
        pass
    except SourceError as error:
        is_known = session.learned.union(known).issuperset(session.constants)
        if is_known or isinstance(error, UnsupportedError):
            raise
        raise SourceRuntimeError(
            f"the constants of {name} are not known where its declarations use them: {error.what}",
            place=error.place or place,
            why="they are read from the tensors, whose annotations stand further down",
            remedy="annotate the tensors first, with constants alone as extents",
        ) from error
    return found_in(session.constants, params)


def unbound_error(captured: Captured, name: str, found: Found) -> SourceRuntimeError:
    """The error about a constant that no tensor shows."""
    return SourceRuntimeError(
        f"constant {name} of {captured.name} cannot be read from any tensor",
        place=captured.place,
        why="it is used in no shape and no stride, or only inside an expression; "
        + ("; ".join(found.shapes) or "no parameter is a tensor"),
        remedy=f"use it alone as an extent or a stride of a tensor, or pass {name}=...",
    )
