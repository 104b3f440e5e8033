"""The constants of a jitted function: which there are, and where a call's arguments show them.

Most functions say so in their text: each constant is declared once, each parameter annotated once. The others
(annotations in branches, shapes in variables) are asked by a run of their declarations. Such a run is told
numbers one after the other, and may branch on any of them: its answer holds for arguments that give it the
same ones."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any

from tilec.errors import SourceRuntimeError, SourceTypeError, SourceValueError
from tilec.inprocess.calls.callers import distinct, strides_of
from tilec.language.frontend.constants import Bind, Found, unbound_error
from tilec.language.frontend.jitted import JitFunction
from tilec.language.frontend.rewriting.capture import Captured
from tilec.language.frontend.shape_names import Size
from tilec.language.tiles.parameters.signatures import StridedTensor, TensorType, const


def size_at(tensor: Any, bind: Bind) -> int:
    """The number at a place of a tensor, or of a T.Tensor(...) in its place."""
    if isinstance(tensor, TensorType):
        entries = tensor.strides if bind.is_stride else tensor.shape
        return int((entries or ())[bind.axis])
    found = int((strides_of(tensor) if bind.is_stride else tensor.shape)[bind.axis])
    is_packed = bind.packed > 1 and "int8" in str(getattr(tensor, "dtype", ""))
    return found * bind.packed if is_packed else found


class Constants:
    """Those of one function."""

    def __init__(self, entry: JitFunction) -> None:
        self._entry = entry
        self._captured = entry.captured
        self._runs: dict[Any, Found | _Asked] = {}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All that callers may give by name."""
        declared = [name for _, name in _constants(self._captured)]
        return tuple(dict.fromkeys([*declared, *self._entry.shape_names.constants]))

    @cached_property
    def binds(self) -> dict[str, Bind] | None:
        """Where each constant is read; None where the text does not tell."""
        if _has_choices(self._captured):
            return None
        found = _written_binds(self._captured)
        found |= {name: _bind(sizes[0]) for name, sizes in self._entry.shape_names.constants.items()}
        return {name: found[name] for name in self.names} if set(self.names) <= set(found) else None

    def values(
        self, compiled: Mapping[str, Any], given: Mapping[str, int], arguments: Mapping[str, Any]
    ) -> dict[str, int]:
        """Every constant: ``given`` by name, or read from the arguments. Raises RuntimeError for one that no
        tensor shows, TypeError where its tensor is missing, ValueError where two tensors disagree."""
        known = {name: int(value) for name, value in given.items()}
        names, binds = self.names, self.binds
        if binds is None or any(map(_may_be_packed, arguments.values())):
            found = self._found(compiled, known, arguments)
            names, binds = (*found.names, *self._open()), {**found.binds, **self._open()}
        made = {name: self._value(name, binds.get(name), known, arguments) for name in names}
        self._compare(made, arguments)
        return made

    def _open(self) -> dict[str, Bind]:
        return {name: _bind(sizes[0]) for name, sizes in self._entry.shape_names.constants.items()}

    def _found(
        self, compiled: Mapping[str, Any], known: Mapping[str, int], arguments: Mapping[str, Any]
    ) -> Found:
        """By a run of the declarations, or by an earlier one that was told the same."""
        key = (distinct(compiled), frozenset(known.items()))
        earlier = self._runs.get(key)
        while isinstance(earlier, _Asked):
            earlier = earlier.then.get(_number(earlier.bind, arguments))
        if earlier is not None:
            return earlier
        told: list[tuple[Bind, int | None]] = []

        def tell(bind: Bind) -> int | None:
            told.append((bind, _number(bind, arguments)))
            return told[-1][1]

        found = self._entry.discover(compiled, known, tell)
        for name in found.unbound:
            if name not in known:
                raise unbound_error(self._captured, name, found)
        _remember(self._runs, key, told, found)
        return found

    def _value(
        self, name: str, bind: Bind | None, known: Mapping[str, int], arguments: Mapping[str, Any]
    ) -> int:
        if name in known or bind is None:
            return known[name]
        tensor = arguments.get(bind.param)
        if tensor is None:
            raise SourceTypeError(
                f"missing a required argument: {bind.param!r}, or {name}=...", place=self._captured.place
            )
        return size_at(tensor, bind)

    def _compare(self, made: Mapping[str, int], arguments: Mapping[str, Any]) -> None:
        """Sizes that an unpacking makes one are equal."""
        for name, sizes in self._entry.shape_names.constants.items():
            for size in sizes[1:]:
                number = _number(_bind(size), arguments)
                if number is not None and number != made[name]:
                    raise SourceValueError(
                        f"{name} of {self._captured.name} is {made[name]} in {_shown(sizes[0])} "
                        f"and {number} in {_shown(size)}",
                        place=self._captured.place,
                        why="both are unpacked into one name",
                        remedy="pass tensors whose shapes agree",
                    )


@dataclass(frozen=True)
class _Asked:
    """Where runs asked for a number next, and what each number led to."""

    bind: Bind
    then: dict[Any, Found | _Asked] = field(default_factory=dict)


def _remember(
    runs: dict[Any, Found | _Asked], key: Any, told: Sequence[tuple[Bind, int | None]], found: Found
) -> None:
    """Equal answers so far ask for the same number next."""
    for bind, number in told:
        asked = runs.setdefault(key, _Asked(bind))
        assert isinstance(asked, _Asked)
        assert asked.bind == bind
        runs, key = asked.then, number
    runs[key] = found


def _bind(size: Size) -> Bind:
    return Bind(size.param, size.axis, size.what == "stride")


def _may_be_packed(argument: Any) -> bool:
    """Whether an argument may hold several elements of the annotated dtype in each of its own."""
    return "int8" in str(getattr(argument, "dtype", ""))


def _shown(size: Size) -> str:
    return f"axis {size.axis} of {size.param}" + (" (its stride)" if size.what == "stride" else "")


def _number(bind: Bind, arguments: Mapping[str, Any]) -> int | None:
    tensor = arguments.get(bind.param)
    return None if tensor is None else size_at(tensor, bind)


# ---- what the text says ----


def _has_choices(captured: Captured) -> bool:
    """Whether declarations stand in branches or loops, a parameter has several, or the variable of a constant
    is assigned again."""
    inside = [node for stmt in captured.tree.body for node in ast.walk(stmt) if node is not stmt]
    nested = [node for node in inside if _declares(captured, node)]
    outside = [stmt.target.id for stmt in captured.tree.body if _annotates(captured, stmt)]  # type: ignore[attr-defined]
    return bool(nested) or len(set(outside)) != len(outside) or _rebinds(captured)


def _rebinds(captured: Captured) -> bool:
    """Whether a variable that holds a constant is assigned more than once."""
    held = {holder for holder, _ in _constants(captured)}
    stores = [
        node.id
        for node in ast.walk(captured.tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in held
    ]
    return len(set(stores)) != len(stores)


def _declares(captured: Captured, node: ast.AST) -> bool:
    return _annotates(captured, node) or (isinstance(node, ast.Assign) and any(_assignments(captured, node)))


def _annotates(captured: Captured, node: ast.AST) -> bool:
    is_bare = isinstance(node, ast.AnnAssign) and node.value is None and isinstance(node.target, ast.Name)
    return is_bare and node.target.id in captured.parameters  # type: ignore[attr-defined]


def _written_binds(captured: Captured) -> dict[str, Bind]:
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
            yield from _assignments(captured, node)


def _assignments(captured: Captured, node: ast.Assign) -> Iterator[tuple[str, str]]:
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
