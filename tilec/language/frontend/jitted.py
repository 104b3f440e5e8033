"""What a function under ``@tilec.jit`` is to the frontend: a factory, or an eager kernel to trace."""

from __future__ import annotations

import ast
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import FunctionType
from typing import TYPE_CHECKING, Any

from tilec.errors import SourceError, SourceTypeError, SourceValueError
from tilec.ir import nodes as ir
from tilec.language.frontend.constants import Found, Numbers, discover, found_in, learn, unbound_error
from tilec.language.frontend.programs import Macro, Run, Signature, of_the_signature, prim_func, trace_settled
from tilec.language.frontend.rewriting.capture import Captured, nodes_of, scope_of_caller
from tilec.language.frontend.shape_names import ShapeNames, shape_names
from tilec.language.threads.launches import Kernel
from tilec.language.tiles.parameters.signatures import TensorType, const, empty
from tilec.language.tiles.parameters.tensor_specs import Dyn, TensorSpec, dtype_name, dyn
from tilec.language.values.kernel.places import source_error
from tilec.language.values.scalars import Pointer, dtype

if TYPE_CHECKING:
    from tilec.language.values.kernel.elaboration import Session

_EAGER_MARKS = (Kernel, const, empty)


class JitFunction:
    """A function decorated with `tilec.jit`, which adds what it does in process. ``mode`` is "lazy" (a
    factory that returns a prim_func) or "eager" (its own body is the kernel)."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any], depth: int = 2) -> None:
        if not isinstance(function, FunctionType):
            raise source_error(
                SourceTypeError,
                f"@tilec.jit decorates a function, not {type(function).__name__}",
                remedy="give a prim_func to tilec.compile; jit goes on the function that returns it",
            )
        self.func = function
        self.options = options
        self.out_idx = options.get("out_idx")
        self.captured = Captured(function, scope_of_caller(depth))
        self.mode = _mode(self.captured)
        #: What `tilec.autotune` above this function searches: configs, or a function that gives them.
        self.tuning_configs: Any = None
        if self.mode == "eager":
            self.captured.check_parameters()
        self.__name__, self.__module__ = function.__name__, function.__module__
        self.__doc__ = function.__doc__
        self.check_out_idx(self.out_idx)

    def check_out_idx(self, out_idx: Any) -> None:
        """Raises ValueError for outputs by index of an eager kernel, whose body says what it returns."""
        if self.mode == "eager" and out_idx not in (None, []):
            raise SourceValueError(
                f"out_idx on the eager kernel {self.__name__}",
                place=self.captured.place,
                remedy="return T.empty tensors instead",
            )

    def is_lazy_mode(self) -> bool:
        """Whether this is a factory."""
        return self.mode == "lazy"

    def compile_time_parameters(self) -> tuple[str, ...]:
        """The parameters of an eager kernel that are no tensors and no runtime scalars."""
        declared = _body_annotations(self.captured.tree)
        names = [name for name in self.captured.parameters if name not in declared]
        return tuple(name for name in names if not is_runtime_annotation(self._kind(name)))

    @cached_property
    def specs(self) -> dict[str, TensorSpec]:
        """The parameters whose annotation leaves sizes to the arguments."""
        kinds = {name: self._kind(name) for name in self.captured.parameters}
        return {name: kind for name, kind in kinds.items() if isinstance(kind, TensorSpec)}

    @cached_property
    def shape_names(self) -> ShapeNames:
        """What their sizes are called."""
        return shape_names(self.captured.tree, self.specs)

    def open_dtypes(self) -> tuple[str, ...]:
        """The dtypes that come with the arguments, as a manifest names them: "A.dtype"."""
        return tuple(dtype_name(name) for name, spec in self.specs.items() if spec.dtype is None)

    def trace(self, session: Session, given: Mapping[str, Any]) -> ir.Kernel:
        """Run the eager body with these compile-time values."""
        return trace_settled(session, lambda: self._trace(session, given))

    def _trace(self, session: Session, given: Mapping[str, Any]) -> ir.Kernel:
        signature = self._signature(given, session.dims)
        kernel = self._run(session, given, signature, lambda _: None)
        self._check_declared(signature, session, given)
        if not session.open_dims:
            self._check_constants(found_in(session.constants, signature.params))
        return kernel

    def discover(self, given: Mapping[str, Any], known: Mapping[str, int], numbers: Numbers) -> Found:
        """Where the constants come from, for these compile-time values and constants ``known`` by name;
        ``numbers`` reads the arguments at hand. Raises `SourceRuntimeError`."""
        signature = self._signature(given, ())

        def run(session: Session) -> None:
            self._run(session, given, signature, lambda tensor: learn(session, tensor, numbers))

        return discover(self.__name__, known, run, signature.params, self.captured.place)

    def _signature(self, given: Mapping[str, Any], dims: Container[str]) -> Signature:
        """Sizes that ``dims`` calls after a place of theirs keep that name."""
        names = self.shape_names.names
        chosen = {name: place for place, name in names.items() if place in dims}
        dtypes = {name: given.get(dtype_name(name)) for name in self.specs}
        return Signature(
            names={place: chosen.get(name, name) for place, name in names.items()}, dtypes=dtypes
        )

    def _run(
        self,
        session: Session,
        given: Mapping[str, Any],
        signature: Signature,
        declared: Callable[[Any], None],
    ) -> ir.Kernel:
        """Run the body; ``declared`` is told of every parameter that is no compile-time value."""
        session.is_eager = True
        declare = _InOrder(signature, self.captured.defaults(), declared).annotate
        run = Run(session, self.captured, signature, declare)
        return run([self._value(name, given, declare) for name in self.captured.parameters])

    def _check_constants(self, found: Found) -> None:
        for name in found.unbound:
            raise unbound_error(self.captured, name, found)

    def _value(self, name: str, given: Mapping[str, Any], declare: Callable[[str, Any], Any]) -> Any:
        if name in given:
            return given[name]
        kind = self._kind(name)
        if not is_runtime_annotation(kind):
            return _Undeclared(name)
        with of_the_signature(self.captured):
            return declare(name, kind)

    def _kind(self, name: str) -> Any:
        try:
            return self.captured.annotation(name, {})
        except NameError:
            return None

    def _check_declared(self, signature: Signature, session: Session, given: Mapping[str, Any]) -> None:
        for name in self.captured.parameters:
            if name not in signature.params and name not in given and name not in session.dims:
                raise SourceError(
                    f"parameter {name} of {self.__name__} is neither declared nor given",
                    place=self.captured.place,
                    remedy=f"annotate it in the body, or give {name} in args or config",
                )


@dataclass(frozen=True)
class _InOrder:
    """Annotations of parameters: each declares a tensor or a scalar once."""

    signature: Signature
    defaults: Mapping[str, Any]
    declared: Callable[[Any], None]

    def annotate(self, name: str, kind: Any) -> Any:
        """``name: kind``, in the signature or in the body."""
        held = self.signature.add(name, kind, self.defaults.get(name))
        self.declared(self.signature.params.get(name))
        return held


class _Undeclared:
    """What a parameter holds before the body has declared it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def _refuse(self, *args: Any) -> Any:
        raise source_error(
            SourceError,
            f"parameter {self._name} is used before it is declared",
            construct=self._name,
            remedy=f"write `{self._name}: T.Tensor[[M, N], dtype]` first, or give it in args or config",
        )

    def __getattr__(self, name: str) -> Any:
        self._refuse()

    __getitem__ = __setitem__ = __iter__ = __bool__ = __add__ = __sub__ = __mul__ = _refuse


def is_runtime_annotation(kind: Any) -> bool:
    """Whether an annotation makes a tensor or a runtime scalar of a parameter."""
    return kind is dyn or isinstance(kind, (TensorType, TensorSpec, Dyn, dtype))


def _mode(captured: Captured) -> str:
    """ "lazy" if an inner function is decorated with prim_func, or returned without it (which tracing tells),
    or if nothing shows an eager kernel: a use of what only kernels have, or a parameter that is declared as
    one of a kernel."""
    nodes = nodes_of(captured.tree)[1:]
    decorators = [
        found for node in nodes if isinstance(node, ast.FunctionDef) for found in node.decorator_list
    ]
    if any(captured.look_up(_callee(decorator)) is prim_func for decorator in decorators):
        return "lazy"
    if _returns_a_plain_function(captured.tree):
        return "lazy"
    chains = (node for node in nodes if isinstance(node, (ast.Name, ast.Attribute)))
    if any(_is_eager_mark(captured.look_up(chain)) for chain in chains) or _declares(captured):
        return "eager"
    return "lazy"


def _returns_a_plain_function(tree: ast.FunctionDef) -> bool:
    """Whether what the body returns is a function that it defines and does not decorate."""
    plain = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and not node.decorator_list}
    returned = [node.value for node in tree.body if isinstance(node, ast.Return)]
    return any(isinstance(value, ast.Name) and value.id in plain for value in returned)


def _declares(captured: Captured) -> bool:
    """Whether a parameter is declared in the body, or annotated with a tensor or an address."""
    kinds = captured.function.__annotations__.values()
    tensors = any(isinstance(kind, (TensorType, TensorSpec, Pointer)) for kind in kinds)
    return tensors or bool(_body_annotations(captured.tree) & set(captured.parameters))


def _callee(decorator: ast.expr) -> ast.expr:
    return decorator.func if isinstance(decorator, ast.Call) else decorator


def _is_eager_mark(found: Any) -> bool:
    return isinstance(found, Macro) or any(found is mark for mark in _EAGER_MARKS)


def _body_annotations(tree: ast.FunctionDef) -> set[str]:
    return {
        node.target.id
        for node in nodes_of(tree)
        if isinstance(node, ast.AnnAssign) and node.value is None and isinstance(node.target, ast.Name)
    }
