"""Kernels as Python objects: T.prim_func, T.macro, and how a function's run becomes a tile IR kernel."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any

from tilec.errors import SourceError, SourceRuntimeError, SourceTypeError, SourceValueError
from tilec.ir import nodes as ir
from tilec.ir.num_sms import NUM_SMS
from tilec.language.frontend.rewriting.activation import Activation
from tilec.language.frontend.rewriting.capture import Captured, scope_of_caller
from tilec.language.frontend.shape_names import shape_names
from tilec.language.tiles.memory.buffers import Element
from tilec.language.tiles.parameters.pointers import Address, AddressParam, PointerStaysAddress, settle
from tilec.language.tiles.parameters.signatures import Declared, TensorType, Var, declare
from tilec.language.tiles.parameters.tensor_specs import Dyn, TensorSpec, dyn, filled_in
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.access import access
from tilec.language.values.kernel.builder import Builder
from tilec.language.values.kernel.places import source_error, unsupported
from tilec.language.values.scalars import Pointer, dtype
from tilec.language.values.value import Dim, Value, is_number, resolve
from tilec.spelling import counted, nearest

if TYPE_CHECKING:
    from tilec.language.values.kernel.elaboration import Session

_WORD = re.compile(r"[A-Za-z_]\w*")
_CALLS = frozenset(["min", "max"])


class ScalarSizesTensorError(SourceError):
    """A runtime scalar sizes a tensor and is not in dims; ``scalar`` is its name, ``parameters`` are those of
    the kernel's function."""

    def __init__(self, what: str, *, scalar: str, captured: Captured, why: str, remedy: str) -> None:
        super().__init__(what, place=captured.place, why=why, remedy=remedy)
        self.scalar = scalar
        self.parameters = tuple(captured.parameters)


@dataclass
class Signature:
    """The parameters of a kernel while it is traced, by name in order; ``sizes`` are scalars that are
    dimensions instead. ``names`` and ``dtypes`` are what `filled_in` takes for parameters that leave sizes to
    the arguments."""

    params: dict[str, Any] = field(default_factory=dict)
    sizes: list[str] = field(default_factory=list)
    names: Mapping[str, str] = field(default_factory=dict)
    dtypes: Mapping[str, Any] = field(default_factory=dict)

    def add(self, name: str, kind: Any, default: Any = None) -> Any:
        """Declare a parameter; what its name holds in the body."""
        kind = kind.dtype if isinstance(kind, Dyn) else dtype("int32") if kind is dyn else resolve(kind)
        if isinstance(kind, TensorSpec):
            kind = TensorType(*filled_in(name, kind, self.names, self.dtypes))
        if isinstance(kind, TensorType):
            declared = self.params[name] = declare(name, kind)
            return declared.buffer
        if isinstance(kind, Pointer):
            pointer = self.params[name] = AddressParam(name, Address(name))
            return pointer.address
        if isinstance(kind, dtype):
            return self._scalar(name, kind, default)
        what = f"parameter {name} is annotated with {kind!r}"
        raise source_error(
            SourceTypeError,
            what,
            construct=name,
            remedy="use T.Tensor, T.StridedTensor, T.ptr or T.int32 and friends",
        )

    def _scalar(self, name: str, kind: dtype, default: Any) -> Any:
        """A runtime scalar; one that dims lists is a dimension and no parameter of its own."""
        from tvm import tirx

        session = sessions.current(name)
        if name in session.dims:
            self.sizes.append(name)
            return session.dimension(name, str(kind))
        if kind.lanes != 1:
            raise unsupported(f"a scalar parameter of {kind}", remedy="pass the lanes one by one")
        var = tirx.Var(name, str(kind))
        self.params[name] = ir.ScalarParam(name, var, default if is_number(default) else None)
        return Value(var, text=name)


class PrimFunc:
    """A kernel whose parameters are all annotated; made by ``@T.prim_func``. Not callable: a manifest names
    it."""

    def __init__(self, function: Callable[..., Any], depth: int = 2) -> None:
        if not isinstance(function, FunctionType):
            raise source_error(
                SourceTypeError,
                f"@T.prim_func decorates a function, not {type(function).__name__}",
                remedy="put it on the function itself, without @tilec.jit between them",
            )
        self.captured = Captured(function, scope_of_caller(depth))
        self.captured.check_parameters()
        self.name = function.__name__
        self.__doc__ = function.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refused: a prim_func is a description."""
        raise SourceTypeError(
            f"prim_func {self.name} is not callable",
            place=self.captured.place,
            remedy="give it to tilec.compile, or name it in a manifest",
        )

    def trace(self, session: Session, out_idx: Any = None) -> ir.Kernel:
        """Run the body once and return the kernel. ``out_idx`` as `tilec.jit` takes it."""
        return trace_settled(session, lambda: self._trace(session, out_idx))

    def _specs(self) -> dict[str, TensorSpec]:
        spelled = self.captured.function.__annotations__
        return {name: kind for name, kind in spelled.items() if isinstance(kind, TensorSpec)}

    def _trace(self, session: Session, out_idx: Any) -> ir.Kernel:
        signature = Signature(names=shape_names(self.captured.tree, self._specs()).names)
        made: dict[str, Any] = {}
        run = Run(session, self.captured, signature)
        for name in self.captured.parameters:
            kind = self.captured.annotation(name, made)
            if kind is None or kind in (int, float, bool, str):
                raise SourceTypeError(
                    f"argument {name} of {self.name} is not annotated with a T type",
                    place=self.captured.place,
                    remedy=f"write {name}: T.Tensor(...) or {name}: T.int32",
                )
            with of_the_signature(self.captured):
                made[name] = signature.add(name, kind)
        return run(list(made.values()), out_idx=out_idx)


@contextmanager
def of_the_signature(captured: Captured) -> Iterator[None]:
    """Errors in the block are about a function's parameters: no line of its body is being executed."""
    try:
        yield
    except SourceError as error:
        error.place = captured.place
        raise


def trace_settled(session: Session, trace: Callable[[], ir.Kernel]) -> ir.Kernel:
    """The kernel that ``trace`` gives when it knows which pointers are no tensors."""
    while True:
        try:
            return trace()
        except PointerStaysAddress as found:
            session.addresses.add(found.name)


@dataclass
class Run:
    """One run of a captured kernel function under a session."""

    session: Session
    captured: Captured
    signature: Signature
    annotate: Callable[[str, Any], Any] | None = None

    def __call__(self, values: list[Any], out_idx: Any = None) -> ir.Kernel:
        """Run the function with these parameter values; the kernel it describes."""
        builder = self.session.builder = Builder(self.captured.loc, self.session.remarks)
        try:
            activation = Activation(builder, self.captured.named_values(), self.annotate)
            returned = self.captured.instantiate()(activation, *values)
        finally:
            self.session.builder = None
        body = settle(builder, self.signature.params, builder.pop_function())
        if not any(isinstance(stmt, ir.Launch) for stmt in body):
            raise SourceError(
                f"kernel {self.captured.name} has no T.Kernel block",
                place=self.captured.place,
                remedy="write the body under `with T.Kernel(...)`",
            )
        outputs = self._outputs(builder, returned, out_idx)
        return self._kernel(
            body, outputs, _output_names(list(self.signature.params.values()), out_idx, self.captured)
        )

    def _outputs(self, builder: Builder, returned: Any, out_idx: Any) -> list[Declared]:
        """The tensors made by T.empty in the order in which they are returned."""
        items = (
            ()
            if returned is None
            else tuple(returned)
            if isinstance(returned, (tuple, list))
            else (returned,)
        )
        made = builder.outputs
        found = [output for item in items for output in made if output.buffer is item]
        each = all(any(one is output for one in found) for output in made)
        if not each or not len(found) == len(items) == len(made):
            raise SourceRuntimeError(
                f"kernel {self.captured.name} must return its T.empty tensors and nothing else",
                place=self.captured.place,
                why=f"it makes {_named(one.buffer for one in made)} and returns {_named(items)}",
                remedy="return every output, in the order callers get them",
            )
        if made and out_idx not in (None, []):
            raise SourceValueError(
                f"kernel {self.captured.name} has both T.empty and out_idx",
                place=self.captured.place,
                remedy="leave out_idx out",
            )
        return found

    def _kernel(self, body: ir.Block, outputs: list[Declared], returned: set[str]) -> ir.Kernel:
        self._check_dims()
        names = self._names(outputs)
        order = self.captured.parameters.index
        declared = sorted(self.signature.params.values(), key=lambda param: order(param.name))
        params = [_param(param, body, param.name in returned) for param in declared]
        params += [_tensor(output, "out", True, name) for output, name in zip(outputs, names, strict=True)]
        return ir.Kernel(self.session.name, tuple(params), self._dims(params, body), body, self.captured.doc)

    def _names(self, outputs: list[Declared]) -> list[str]:
        """Distinct names of the outputs: two T.empty under one name are told apart by a number."""
        taken, names = set(self.signature.params), []
        for output in outputs:
            name, count = output.name, 0
            while name in taken:
                count += 1
                name = f"{output.name}_{count}"
            taken.add(name)
            names.append(name)
        return names

    def _check_dims(self) -> None:
        """Every name in dims is a parameter or a dimension that the kernel asked for, and no tensor's."""
        for name, param in self.signature.params.items():
            if isinstance(param, Declared) and name in self.session.used:
                raise SourceValueError(
                    f"{name} is a tensor and a dimension of {self.captured.name}",
                    place=self.captured.place,
                    remedy="give them different names",
                )
        unused = [name for name in self.session.dims if name not in self.session.used]
        if not unused:
            return
        near = nearest(unused[0], self.session.used)
        raise SourceError(
            f"kernel {self.captured.name} has no dimension {unused[0]}",
            place=self.captured.place,
            why=f"its dimensions are {', '.join(self.session.used) or 'none'}",
            remedy=f"did you mean {near}?" if near else "remove it from dims",
        )

    def _dims(self, params: list[ir.Param], body: ir.Block) -> tuple[ir.Dim, ...]:
        """Dimensions in order of first appearance: extents, then strides, then the rest as dims lists
        them. Those that nobody lists and nothing mentions are none (`M, N, K = T.dynamic("M N K")` in a
        kernel without K)."""
        tensors = [param for param in params if isinstance(param, ir.TensorParam)]
        texts = [text for tensor in tensors for text in tensor.extents]
        texts += [text for tensor in tensors for text in tensor.strides or ()]
        found = [word for text in texts for word in _WORD.findall(text) if word not in _CALLS]
        self._check_num_sms(found)
        self._check_scalars([p.name for p in params if isinstance(p, ir.ScalarParam) and p.name in found])
        idle = self._idle(self.session.opened - set(found), body)
        names = dict.fromkeys([*found, *self.session.dims])
        return tuple(self._dim(name) for name in names if name not in idle)

    def _check_scalars(self, sizing: list[str]) -> None:
        """Scalars that size tensors, or have the name of a T.dynamic, are dimensions that dims lists."""
        named = [name for name in self.signature.sizes if name in self.session.opened]
        for name in (*sizing, *named):
            raise ScalarSizesTensorError(
                f"scalar parameter {name} of {self.captured.name} "
                + ("is a T.dynamic, too" if name in named else "sizes a tensor"),
                captured=self.captured,
                why="callers then give it as a dimension",
                remedy=f'add {name} = "dynamic" (or an integer, or a guard) to dims',
                scalar=name,
            )

    def _idle(self, names: set[str], body: ir.Block) -> set[str]:
        """Which of these dimensions no statement mentions, and no shape of what it names."""
        from tilec.ir.exprs import variables_of
        from tilec.ir.traits import mentioned

        if not names:
            return names
        met = {each for stmt in ir.walk(body) for each in mentioned(stmt)}
        met.update(variables_of(size for each in met for size in getattr(each, "shape", ())))
        return {name for name in names if self.session.used[name].expr not in met}

    def _check_num_sms(self, sizes: list[str]) -> None:
        """Callers make the tensors, and what the library fills in at launch is unknown to them."""
        if NUM_SMS in self.captured.parameters and NUM_SMS in self.session.dims:
            raise SourceValueError(
                f"parameter {NUM_SMS} of {self.captured.name} has the name of the number of multiprocessors",
                place=self.captured.place,
                why="the kernel asks for that one too, with driver.get_num_sms()",
                remedy="give the parameter another name",
            )
        if NUM_SMS not in sizes:
            return
        raise SourceValueError(
            f"the shape of a parameter of {self.captured.name} has driver.get_num_sms()",
            place=self.captured.place,
            why="in a library it is known when the kernel is launched, and callers make tensors before",
            remedy="give that extent a dimension of its own, or hold the tensor in T.alloc_global",
        )

    def _dim(self, name: str) -> ir.Dim:
        made = self.session.dimension(name)
        return ir.Dim(name, None if isinstance(made, Dim) else made.expr, self.session.dims[name])


def _tensor(declared: Declared, how: str, output: bool, name: str) -> ir.TensorParam:
    var, extents, strides = declared.buffer.memory, declared.extents, declared.strides
    return ir.TensorParam(name, var, extents, strides, how, output, declared.pointer)


def _param(param: Declared | ir.ScalarParam, body: ir.Block, output: bool) -> ir.Param:
    if isinstance(param, ir.ScalarParam):
        return param
    return _tensor(param, access(body, param.buffer.memory), output, param.name)


def _indices(out_idx: Any, captured: Captured) -> list[int]:
    """None, one index, or several."""
    if out_idx is None:
        return []
    is_one = isinstance(out_idx, str) or not isinstance(out_idx, Iterable)
    indices = [out_idx] if is_one else list(out_idx)
    wrong = [each for each in indices if not hasattr(each, "__index__")]
    if wrong:
        raise SourceTypeError(
            f"out_idx {wrong[0]!r} is no index of a parameter",
            place=captured.place,
            remedy="give an integer or a list of integers",
        )
    return indices


def _output_names(params: list[Declared | ir.ScalarParam], out_idx: Any, captured: Captured) -> set[str]:
    """The parameters that ``out_idx`` makes outputs."""
    names: set[str] = set()
    for index in _indices(out_idx, captured):
        if not -len(params) <= index < len(params):
            raise SourceValueError(
                f"out_idx {index} is out of range for {counted(len(params), 'parameter')}",
                place=captured.place,
                remedy=f"use {-len(params)} to {len(params) - 1}",
            )
        param = params[index]
        if isinstance(param, ir.ScalarParam) or param.name in names:
            what = "a scalar parameter" if isinstance(param, ir.ScalarParam) else "the same parameter twice"
            raise SourceValueError(
                f"out_idx {index} names {what}",
                place=captured.place,
                remedy="list tensor parameters, each once",
            )
        names.add(param.name)
    return names


def prim_func(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Decorator: the function is a kernel; ``private`` and the like are accepted and mean nothing."""
    if function is None:
        return lambda found: PrimFunc(found)
    return PrimFunc(function)


class Ref:
    """Annotation of a macro parameter that writes through: a T.alloc_var or an element."""


class Macro:
    """A function that is rewritten like a kernel and inlined at each call; made by ``@T.macro``."""

    def __init__(
        self, function: Callable[..., Any], depth: int = 2, *, sets_attributes: bool = False
    ) -> None:
        if not isinstance(function, FunctionType):
            raise source_error(
                SourceTypeError,
                f"@T.macro decorates a function, not {type(function).__name__}",
                remedy="put it on a function written with def",
            )
        self.captured = Captured(function, scope_of_caller(depth), sets_attributes=sets_attributes)
        self._references = self.captured.annotated_with(Ref, Var)
        self._signature = inspect.signature(function)
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """A macro in a class is a method: called on an object, it gets that object first."""
        return self if instance is None else partial(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Inline the macro here; what it returns."""
        builder = sessions.builder(f"macro {self.__name__}")
        builder.wished = []
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        activation = Activation(builder, self.captured.named_values())
        values = [
            self._argument(activation, name, bound.arguments[name]) for name in self.captured.parameters
        ]
        builder.emitted += 1
        return self.captured.instantiate()(activation, *values)

    def _argument(self, activation: Activation, name: str, value: Any) -> Any:
        """Expressions are evaluated once at entry; a T.Ref parameter keeps the place."""
        value = resolve(value)
        if name in self._references:
            return self._place(activation, name, value)
        return activation.once(value, name) if isinstance(value, Value) else value

    def _place(self, activation: Activation, name: str, value: Any) -> Element:
        """The element that a T.Ref parameter stands for; indices that memory gives are read here, once."""
        if not isinstance(value, Element):
            raise source_error(
                SourceValueError,
                f"{name} of macro {self.__name__} takes a variable or an element",
                construct=name,
                remedy="pass a T.alloc_var or A[i]",
            )
        indices = tuple(activation.once(Value(index), name).expr for index in value.indices)
        return Element(value.buffer, indices, reference=True).settled()


def _named(items: Iterable[Any]) -> str:
    """Values by the names of those that are buffers."""
    return ", ".join(str(getattr(item, "name", repr(item))) for item in items) or "nothing"


def macro(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Decorator: the function is inlined wherever a kernel calls it."""
    if function is None:
        return lambda found: Macro(found)
    return Macro(function)
