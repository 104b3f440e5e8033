"""What the sizes of a function's `TensorSpec` parameters are called, from its text.

``M, K = A.shape_params()`` names the sizes of A; a name that holds a size already makes the two one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tilec.language.frontend.rewriting.capture import nodes_of
from tilec.language.tiles.parameters.tensor_specs import Dyn, TensorSpec, is_open, place_name

_UNPACKED = ("shape_params", "params")
_WHATS = ("shape", "stride")


@dataclass(frozen=True)
class Size:
    """A size of a tensor parameter: ``what`` is "shape" or "stride"."""

    param: str
    what: str
    axis: int

    @property
    def place(self) -> str:
        """Its name after its place."""
        return place_name(self.param, self.what, self.axis)


@dataclass(frozen=True)
class ShapeNames:
    """``names``: what every open size is called, by its place. ``constants``: the sizes of each name that are
    compiled in; one of them with a runtime size makes all of the name constant."""

    names: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, tuple[Size, ...]] = field(default_factory=dict)


def shape_names(tree: ast.FunctionDef, specs: Mapping[str, TensorSpec]) -> ShapeNames:
    """The names of the sizes of ``specs``, the parameters with such an annotation."""
    sizes = {size.place: size for size in _sizes(specs)}
    groups = _Groups(list(sizes))
    for place, size in sizes.items():
        entry = _entry(specs, size)
        if isinstance(entry, Dyn):
            groups.hold(entry.name or entry, place, entry.name)
    for param, names in _unpackings(tree, specs):
        for axis, name in enumerate(names[: len(specs[param].shape)]):
            place = place_name(param, "shape", axis)
            if place in sizes and name not in ("", "_"):
                groups.hold(name, place, name)
    params = {arg.arg for arg in (*tree.args.args, *tree.args.kwonlyargs)}
    made, constants = {}, {}
    for group in groups.in_order():
        name = next((each for each in group.names if each not in params), group.places[0])
        made.update(dict.fromkeys(group.places, name))
        members = tuple(sizes[place] for place in group.places)
        if any(_entry(specs, size) is int for size in members):
            constants[name] = members
    return ShapeNames(made, constants)


@dataclass(eq=False)
class _Group:
    """The places that are one size, and the names that it has."""

    places: list[str]
    names: list[str] = field(default_factory=list)


class _Groups:
    """Which places are one size."""

    def __init__(self, places: list[str]) -> None:
        self._of = {place: _Group([place]) for place in places}
        self._held: dict[object, str] = {}

    def hold(self, key: object, place: str, name: str) -> None:
        """``key`` holds the size at ``place``, and every other size that it is given."""
        kept, gone = self._of[self._held.setdefault(key, place)], self._of[place]
        if kept is not gone:
            kept.places.extend(gone.places)
            kept.names.extend(gone.names)
            self._of.update(dict.fromkeys(gone.places, kept))
        if name:
            kept.names.append(name)

    def in_order(self) -> list[_Group]:
        """Every group once, by its first place."""
        return list(dict.fromkeys(self._of.values()))


def _entry(specs: Mapping[str, TensorSpec], size: Size) -> object:
    return specs[size.param].entries(size.what)[size.axis]


def _sizes(specs: Mapping[str, TensorSpec]) -> Iterator[Size]:
    for what in _WHATS:
        for param, spec in specs.items():
            for axis, entry in enumerate(spec.entries(what)):
                if is_open(entry) or isinstance(entry, Dyn):
                    yield Size(param, what, axis)


def _unpackings(tree: ast.FunctionDef, specs: Mapping[str, TensorSpec]) -> Iterator[tuple[str, list[str]]]:
    """(parameter, the names of the targets) of every ``M, K = A.shape_params()``; "" for other targets."""
    for node in nodes_of(tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], (ast.Tuple, ast.List)):
            continue
        param = _unpacked(node.value)
        if param in specs:
            targets = node.targets[0].elts
            yield param, [each.id if isinstance(each, ast.Name) else "" for each in targets]


def _unpacked(value: ast.expr) -> str:
    """The parameter whose sizes an expression gives; "" for any other expression."""
    is_call = isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute)
    if not is_call or value.func.attr not in _UNPACKED:  # type: ignore[attr-defined]
        return ""
    owner = value.func.value  # type: ignore[attr-defined]
    return owner.id if isinstance(owner, ast.Name) else ""
