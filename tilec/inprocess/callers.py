"""Functions made for one signature: the key of a call, and which of its arguments the kernel takes.

They are Python texts compiled once, so that a warm call binds its arguments as any function does and looks a
kernel up with one tuple."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tilec.errors import SourceRuntimeError
from tilec.language.capture import Captured
from tilec.language.signatures import StridedTensor, const

_NOT_GIVEN = "_not_given"
_STRIDES = "_strides"


@dataclass(frozen=True)
class Bind:
    """A constant is the extent (or stride) of ``param`` along ``axis``."""

    param: str
    axis: int
    is_stride: bool


def strides_of(tensor: Any) -> Sequence[int]:
    """In elements: torch's ``stride()``, NumPy's ``strides`` over the size of an element.

    Raises:
        AttributeError: the argument has neither.
    """
    if hasattr(tensor, "stride"):
        return tensor.stride()  # type: ignore[no-any-return]
    return [stride // tensor.itemsize for stride in tensor.strides]


@dataclass(frozen=True)
class Caller:
    """``key(*args, **kwargs)`` is a tuple: the values of ``compiled``, then those of ``constants``.
    ``typed(*args, **kwargs)`` has the classes of ``compiled`` behind them, as 2 and 2.0 are equal and do not
    mean the same. ``runtime(*args, **kwargs)`` gives what the kernel takes of them, in order."""

    compiled: tuple[str, ...]
    constants: tuple[str, ...]
    key: Callable[..., tuple[Any, ...]]
    typed: Callable[..., tuple[Any, ...]]
    runtime: Callable[..., tuple[Any, ...]]


def factory_caller(function: Callable[..., Any]) -> Caller:
    """For a factory: every parameter is compiled in."""
    parameters = list(inspect.signature(function).parameters.values())
    names = tuple(parameter.name for parameter in parameters)
    head, scope = _head(parameters, ())
    key = _function("key", head, f"({_items(names)})", scope)
    typed = _function("typed", head, f"({_items([*names, *_classes(names)])})", scope)
    return Caller(names, (), key, typed, lambda *args, **kwargs: ())


def eager_caller(captured: Captured, compiled: Sequence[str]) -> Caller:
    """For an eager kernel: tensors and runtime scalars are passed on, constants are read from the tensors or
    given by name."""
    parameters = list(inspect.signature(captured.function).parameters.values())
    constants, binds = tuple(constant_names(captured)), constant_binds(captured)
    passed = [parameter.name for parameter in parameters if parameter.name not in compiled]
    head, scope = _head(parameters, constants)
    places = {name: binds.get(name) for name in constants}
    key = _key_function(head, scope, compiled, places)
    typed = _key_function(head, scope, compiled, places, _classes(compiled))
    runtime = _function("runtime", head, f"({_items(passed)})", scope)
    return Caller(tuple(compiled), constants, key, typed, runtime)


def _classes(names: Sequence[str]) -> list[str]:
    return [f"{name}.__class__" for name in names]


def _head(parameters: Sequence[inspect.Parameter], constants: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The parameter list, with constants as keywords, and the objects that it names."""
    scope: dict[str, Any] = {_NOT_GIVEN: NOT_GIVEN, _STRIDES: strides_of}
    texts, after_default = [], False
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            continue
        after_default = after_default or parameter.default is not inspect.Parameter.empty
        texts.append(_parameter(parameter, scope, after_default))
    only = [p for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
    keywords = [_parameter(parameter, scope, False) for parameter in only]
    keywords += [f"{name}={_NOT_GIVEN}" for name in constants]
    return ", ".join([*texts, *(["*", *keywords] if keywords else [])]), scope


def _parameter(parameter: inspect.Parameter, scope: dict[str, Any], after_default: bool) -> str:
    if parameter.default is not inspect.Parameter.empty:
        scope[f"_default_{parameter.name}"] = parameter.default
        return f"{parameter.name}=_default_{parameter.name}"
    return f"{parameter.name}={_NOT_GIVEN}" if after_default else parameter.name


def _key_function(
    head: str,
    scope: dict[str, Any],
    compiled: Sequence[str],
    constants: Mapping[str, Bind | None],
    behind: Sequence[str] = (),
) -> Callable[..., Any]:
    """Each shape is asked for once, unless some constant is given by name. ``behind``: what follows them."""
    slow = [
        f"({_place(bind)} if {name} is {_NOT_GIVEN} else {name})" if bind else name
        for name, bind in constants.items()
    ]
    if not constants or not all(constants.values()):
        return _function("key", head, f"({_items([*compiled, *slow, *behind])})", scope)
    binds = [bind for bind in constants.values() if bind]
    owners = list(dict.fromkeys(_owner(bind) for bind in binds))
    fast = [f"_held{owners.index(_owner(bind))}[{bind.axis}]" for bind in binds]
    lines = [f"if {' is '.join([*constants, _NOT_GIVEN])}:"]
    lines += [f"    _held{number} = {owner}" for number, owner in enumerate(owners)]
    lines += [f"    return ({_items([*compiled, *fast, *behind])})"]
    return _function("key", head, f"({_items([*compiled, *slow, *behind])})", scope, lines)


def _place(bind: Bind) -> str:
    return f"{_owner(bind)}[{bind.axis}]"


def _owner(bind: Bind) -> str:
    return f"{_STRIDES}({bind.param})" if bind.is_stride else f"{bind.param}.shape"


def _function(
    name: str, head: str, result: str, scope: dict[str, Any], lines: Sequence[str] = ()
) -> Callable[..., Any]:
    made: dict[str, Any] = {}
    body = "".join(f"    {line}\n" for line in lines)
    exec(f"def {name}({head}):\n{body}    return {result}\n", scope, made)
    function: Callable[..., Any] = made[name]
    return function


def _items(texts: Sequence[str]) -> str:
    return "".join(f"{text}, " for text in texts)


class _NotGiven:
    def __repr__(self) -> str:
        return "not given"


NOT_GIVEN = _NotGiven()


# ---- what an eager kernel's body says of its constants ----


def constant_names(captured: Captured) -> Iterator[str]:
    """The names of every T.const, in order."""
    yield from dict.fromkeys(name for _, name in _constants(captured))


def constant_binds(captured: Captured) -> dict[str, Bind]:
    """The first place of each constant that stands alone as an extent or a stride: shapes before strides,
    parameters in order."""
    held = dict(_constants(captured))
    found: dict[str, Bind] = {}
    for is_stride in (False, True):
        for param in captured.parameters:
            for axis, node in enumerate(_entries(captured, param, is_stride)):
                name = held.get(node.id) if isinstance(node, ast.Name) else None
                if name is not None:
                    found.setdefault(name, Bind(param, axis, is_stride))
    return found


def _constants(captured: Captured) -> Iterator[tuple[str, str]]:
    """(the variable that holds it, its name) of every constant."""
    for node in ast.walk(captured.tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _assigned(captured, target, node.value)


def _assigned(captured: Captured, target: ast.expr, value: ast.expr) -> Iterator[tuple[str, str]]:
    """Those of ``target = value``; ``N, C, K = T.dynamic("N"), *T.const("C K")`` has two."""
    names = _const_names(captured, value)
    if names:
        holders = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
        for holder, name in zip(holders, names, strict=False):
            if isinstance(holder, ast.Name):
                yield holder.id, name
    elif isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (ast.Tuple, ast.List)):
        left = iter(target.elts)
        for part in value.elts:
            if not isinstance(part, ast.Starred):
                yield from _assigned(captured, next(left, part), part)
                continue
            taken = list(islice(left, len(_const_names(captured, part.value))))
            if not taken:
                return
            yield from _assigned(captured, ast.Tuple(taken), part.value)


def _const_names(captured: Captured, value: ast.expr) -> list[str]:
    """The names that a call of T.const makes; none for another expression."""
    if not isinstance(value, ast.Call) or captured.look_up(value.func) is not const or not value.args:
        return []
    text = value.args[0]
    if not isinstance(text, ast.Constant) or not isinstance(text.value, str):
        raise SourceRuntimeError(
            "T.const takes its names as a text",
            place=captured.place,
            remedy='write M, N = T.const("M, N")',
        )
    return text.value.replace(",", " ").split()


def _entries(captured: Captured, param: str, is_stride: bool) -> list[ast.expr]:
    """The expressions of a tensor's extents or strides, from its annotation in the body or the signature."""
    spelled = _annotation(captured, param)
    if isinstance(spelled, ast.Constant) and isinstance(spelled.value, str):
        spelled = ast.parse(spelled.value, mode="eval").body
    if isinstance(spelled, ast.Subscript):
        base, items = spelled.value, spelled.slice
        arguments = list(items.elts) if isinstance(items, ast.Tuple) else [items]
        grouped = any(isinstance(each, (ast.Tuple, ast.List)) for each in arguments)
        arguments = arguments if grouped else [ast.Tuple(arguments)]
    elif isinstance(spelled, ast.Call):
        base, arguments = spelled.func, list(spelled.args)
    else:
        return []
    if is_stride and captured.look_up(base) is not StridedTensor:
        return []
    at = 1 if is_stride else 0
    group = arguments[at] if len(arguments) > at else None
    if isinstance(group, (ast.Tuple, ast.List)):
        return list(group.elts)
    return [] if group is None else [group]


def _annotation(captured: Captured, param: str) -> ast.expr | None:
    for node in ast.walk(captured.tree):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        if node.target.id == param and node.value is None:
            return node.annotation
    args = captured.tree.args
    return next((arg.annotation for arg in (*args.args, *args.kwonlyargs) if arg.arg == param), None)


def freeze(value: Any) -> Any:
    """A hashable stand-in of a compile-time argument. Raises TypeError for a leaf that has none."""
    if isinstance(value, Mapping):
        return tuple((freeze(key), freeze(each)) for key, each in sorted(value.items(), key=repr))
    if isinstance(value, (list, tuple)):
        return tuple(map(freeze, value))
    if isinstance(value, (set, frozenset)):
        return frozenset(map(freeze, value))
    hash(value)
    return value


def distinct(value: Any) -> Any:
    """As `freeze`, with the class of every leaf: 2, 2.0 and True are equal, and do not mean the same. Texts
    of any class are texts."""
    if isinstance(value, Mapping):
        return tuple((distinct(key), distinct(each)) for key, each in sorted(value.items(), key=repr))
    if isinstance(value, (list, tuple)):
        return tuple(map(distinct, value))
    if isinstance(value, (set, frozenset)):
        return frozenset(map(distinct, value))
    hash(value)
    return (str if isinstance(value, str) else type(value), value)


#: Values whose parts count by their classes, too: one look at their own class does not tell them apart.
CONTAINERS = (tuple, frozenset)
