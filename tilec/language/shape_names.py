"""What the sizes of a function's `TensorSpec` parameters are called, from its text.

``M, K = A.shape_params()`` names the sizes of A; a name that holds a size already makes the two one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tilec.language.tensor_specs import Dyn, TensorSpec, is_open, place_name

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
    groups = _groups(tree, specs, list(sizes))
    params = {arg.arg for arg in (*tree.args.args, *tree.args.kwonlyargs)}
    names, constants = {}, {}
    for places, found in groups:
        name = next((each for each in found if each not in params), places[0])
        names.update(dict.fromkeys(places, name))
        members = tuple(sizes[place] for place in places)
        if any(_entry(specs, size) is int for size in members):
            constants[name] = members
    return ShapeNames(names, constants)


def _entry(specs: Mapping[str, TensorSpec], size: Size) -> object:
    return specs[size.param].entries(size.what)[size.axis]


def _sizes(specs: Mapping[str, TensorSpec]) -> Iterator[Size]:
    for what in _WHATS:
        for param, spec in specs.items():
            for axis, entry in enumerate(spec.entries(what)):
                if is_open(entry) or isinstance(entry, Dyn):
                    yield Size(param, what, axis)


def _groups(
    tree: ast.FunctionDef, specs: Mapping[str, TensorSpec], places: list[str]
) -> list[tuple[list[str], list[str]]]:
    """(the places that are one size, the names that it has), in order of the places."""
    of = {place: ([place], list[str]()) for place in places}

    def join(first: str, second: str) -> None:
        kept, gone = of[first], of[second]
        if kept is gone:
            return
        kept[0].extend(gone[0])
        kept[1].extend(gone[1])
        of.update(dict.fromkeys(gone[0], kept))

    held: dict[object, str] = {}
    for size in _sizes(specs):
        entry = _entry(specs, size)
        if isinstance(entry, Dyn):
            of[size.place][1].extend([entry.name] if entry.name else [])
            join(held.setdefault(entry.name or entry, size.place), size.place)
    for param, names in _unpackings(tree, specs):
        for axis, name in enumerate(names[: len(specs[param].shape)]):
            place = place_name(param, "shape", axis)
            if place not in of or name in ("", "_"):
                continue
            join(held.setdefault(name, place), place)
            of[place][1].append(name)
    unique = {id(group): group for group in of.values()}
    return sorted(unique.values(), key=lambda group: min(places.index(place) for place in group[0]))


def _unpackings(tree: ast.FunctionDef, specs: Mapping[str, TensorSpec]) -> Iterator[tuple[str, list[str]]]:
    """(parameter, the names of the targets) of every ``M, K = A.shape_params()``; "" for other targets."""
    for node in ast.walk(tree):
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
