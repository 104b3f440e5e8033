"""Functions made for one signature: the key of a call, and which of its arguments the kernel takes.

They are Python texts compiled once, so that a warm call binds its arguments as any function does and looks a
kernel up with one tuple."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilec.errors import SourceTypeError
from tilec.language.frontend.constants import Bind
from tilec.language.frontend.rewriting.capture import Captured

_NOT_GIVEN = "_not_given"
_STRIDES = "_strides"


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
    mean the same. ``runtime(*args, **kwargs)`` gives what the kernel takes of them, in order. ``binds``:
    where constants are read, where that is known."""

    compiled: tuple[str, ...]
    constants: tuple[str, ...]
    key: Callable[..., tuple[Any, ...]]
    typed: Callable[..., tuple[Any, ...]]
    runtime: Callable[..., tuple[Any, ...]]
    binds: Mapping[str, Bind] = field(default_factory=dict)

    def unreadable(self, values: Mapping[str, Any]) -> str:
        """Which of the arguments, by parameter, has no such extent as a constant wants; "" if none."""
        for name, bind in self.binds.items():
            value = values.get(bind.param)
            shape = getattr(value, "shape", None)
            if shape is None:
                return (
                    f"{bind.param} is of type {type(value).__name__}, which has no shape to read {name} from"
                )
            if bind.axis >= len(shape):
                return f"{bind.param} has shape {tuple(shape)}, and {name} is its axis {bind.axis}"
        return ""


def factory_caller(function: Callable[..., Any]) -> Caller:
    """For a factory: every parameter is compiled in."""
    parameters = list(inspect.signature(function).parameters.values())
    names = tuple(parameter.name for parameter in parameters)
    head, scope = _head(parameters, ())
    key = _function("key", head, f"({_items(names)})", scope)
    typed = _function("typed", head, f"({_items([*names, *_classes(names)])})", scope)
    return Caller(names, (), key, typed, lambda *args, **kwargs: ())


def eager_caller(
    captured: Captured,
    compiled: Sequence[str],
    dtypes: Sequence[str],
    constants: Sequence[str],
    binds: Mapping[str, Bind],
) -> Caller:
    """For an eager kernel: tensors and runtime scalars are passed on, constants are read from the tensors or
    given by name. ``dtypes``: texts such as "A.dtype", compiled in as well."""
    parameters = list(inspect.signature(captured.function).parameters.values())
    passed = [parameter.name for parameter in parameters if parameter.name not in compiled]
    head, scope = _head(parameters, constants)
    values = [*compiled, *dtypes]
    key = _key_function(head, scope, values, binds)
    typed = _key_function(head, scope, values, binds, _classes(values))
    runtime = _function("runtime", head, f"({_items(passed)})", scope)
    return Caller(tuple(values), tuple(constants), key, typed, runtime, binds)


def asking_caller(
    captured: Captured,
    compiled: Sequence[str],
    dtypes: Sequence[str],
    constants: Sequence[str],
    ask: Callable[[tuple[Any, ...], dict[str, Any]], tuple[Mapping[str, Any], Mapping[str, int]]],
) -> Caller:
    """As `eager_caller` where only a run of the declarations tells the constants: ``ask`` gives the
    compile-time values and the constants of a call. Constants that a call does not have are None."""
    parameters = list(inspect.signature(captured.function).parameters.values())
    passed = [parameter.name for parameter in parameters if parameter.name not in compiled]
    head, scope = _head(parameters, constants)
    names = (*compiled, *dtypes)

    def key(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
        values, made = ask(args, kwargs)
        return (*(values[name] for name in names), *(made.get(name) for name in constants))

    def typed(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
        found = key(*args, **kwargs)
        return (*found, *map(type, found[: len(names)]))

    runtime = _function("runtime", head, f"({_items(passed)})", scope)
    return Caller(names, tuple(constants), key, typed, runtime)


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
    constants: Mapping[str, Bind],
    behind: Sequence[str] = (),
) -> Callable[..., Any]:
    """Each shape is asked for once, unless some constant is given by name. ``behind``: what follows them."""
    slow = [f"({_place(bind)} if {name} is {_NOT_GIVEN} else {name})" for name, bind in constants.items()]
    if not constants:
        return _function("key", head, f"({_items([*compiled, *slow, *behind])})", scope)
    binds = list(constants.values())
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


def freeze(value: Any) -> Any:
    """A hashable stand-in of a compile-time argument. Raises TypeError for a leaf that has none."""
    if isinstance(value, Mapping):
        return tuple((freeze(key), freeze(each)) for key, each in sorted(value.items(), key=repr))
    if isinstance(value, (list, tuple)):
        return tuple(map(freeze, value))
    if isinstance(value, (set, frozenset)):
        return frozenset(map(freeze, value))
    try:
        hash(value)
    except TypeError:
        raise SourceTypeError(
            f"a value of type {type(value).__name__} cannot be a compile-time argument",
            why="kernels are kept by their compile-time arguments, and it has no hash",
            remedy="pass numbers, texts, dtypes, or lists and dicts of them; annotate tensors as such",
        ) from None
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
    return (str if isinstance(value, str) else type(value), freeze(value))


#: Values whose parts count by their classes, too: one look at their own class does not tell them apart.
CONTAINERS = (tuple, frozenset)
