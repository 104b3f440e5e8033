"""A Python function as the frontend keeps it: source, scope at decoration time, and its rewritten twin."""

from __future__ import annotations

import ast
import inspect
import linecache
import os
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import CodeType, FrameType, FunctionType
from typing import Any

from tilec.errors import Place, SourceError, SourceTypeError
from tilec.ir.nodes import Loc
from tilec.language.frontend.rewriting.rewrite import rewrite
from tilec.language.frontend.rewriting.rewrite_expressions import parameter_names
from tilec.language.values.kernel.places import here

_EMPTY = object()


class Captured:
    """One decorated function; ``sets_attributes``: it may assign to attributes, as methods do.

    Closure values are those of the moment it was decorated; cells that were empty then (a function that names
    itself) are read later. Raises `SourceError` where there is no source text."""

    def __init__(
        self, function: FunctionType, scope: FrameType | None, *, sets_attributes: bool = False
    ) -> None:
        if not isinstance(function, FunctionType) or function.__name__ == "<lambda>":
            raise SourceTypeError(
                f"{function!r} is no function written with def",
                place=here(),
                remedy="write it with def, in a file or a notebook cell",
            )
        self.function = function
        self._sets_attributes = sets_attributes
        self.name = function.__name__
        self.file = function.__code__.co_filename
        self.line = function.__code__.co_firstlineno
        self.doc = (inspect.getdoc(function) or "").strip().partition("\n")[0]
        self.tree = _definition(function)
        self.parameters = parameter_names(self.tree)
        self._cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        self._closure = {name: _content(cell) for name, cell in self._cells.items()}
        self._closure.update(self._annotation_names(scope))
        self._makers: dict[tuple[str, ...], Callable[..., Any]] = {}

    @property
    def place(self) -> Place:
        """Where the function stands."""
        return Place(self.file, self.line, self.name)

    @property
    def loc(self) -> Loc:
        """Where the function stands, as a statement carries it."""
        return Loc(self.file, self.line)

    def instantiate(self) -> Callable[..., Any]:
        """The rewritten function: takes the activation, then the parameters by position."""
        values = {name: self.closure_value(name) for name in self._closure}
        bound = {name: value for name, value in values.items() if value is not _EMPTY}
        twin: Callable[..., Any] = self._maker(tuple(bound))(*bound.values())
        return twin

    def _maker(self, free: tuple[str, ...]) -> Callable[..., Any]:
        """The function that takes the free names' values and returns the rewritten function."""
        if free not in self._makers:
            made: dict[str, Any] = {}
            code = _twin_code(self.tree, free, self.file, self._sets_attributes)
            exec(code, self.function.__globals__, made)  # the author's own code, routed through the builder
            self._makers[free] = made["make"]
        return self._makers[free]

    def closure_value(self, name: str) -> Any:
        """What a free name holds."""
        value = self._closure.get(name, _EMPTY)
        return _content(self._cells[name]) if value is _EMPTY and name in self._cells else value

    def named_values(self) -> dict[str, Any]:
        """What the names in the function's text stand for that are not its own, those of annotations too."""
        nodes = nodes_of(self.tree)
        uses = [node for node in nodes if isinstance(node, ast.Name)]
        own = {node.id for node in uses if isinstance(node.ctx, ast.Store)}
        own |= {node.arg for node in nodes if isinstance(node, ast.arg)}
        names = ({node.id for node in uses} - own) | set(self._closure)
        scope = self.function.__globals__
        found = {name: self.closure_value(name) for name in names}
        return {
            name: scope[name] if value is _EMPTY else value
            for name, value in found.items()
            if value is not _EMPTY or name in scope
        }

    def look_up(self, node: ast.expr) -> Any:
        """The object that a chain of names stands for, without running calls; None if it is no such chain."""
        if isinstance(node, ast.Attribute):
            owner = self.look_up(node.value)
            return getattr(owner, node.attr, None) if owner is not None else None
        if not isinstance(node, ast.Name):
            return None
        found = self._closure.get(node.id, _EMPTY)
        return self.function.__globals__.get(node.id) if found is _EMPTY else found

    def annotation(self, name: str, made: Mapping[str, Any]) -> Any:
        """The annotation of a parameter as an object, None if it has none; texts are evaluated in the
        function's scope with ``made`` (earlier parameters) on top."""
        found = self.function.__annotations__.get(name)
        if type(found) is not str:  # dtype objects are strings too
            return found
        scope = {key: value for key, value in self._closure.items() if value is not _EMPTY}
        code = compile(ast.Expression(self._annotation_node(name)), self.file, "eval", dont_inherit=True)
        return eval(code, self.function.__globals__, {**scope, **made})  # an annotation of the author

    def _annotation_node(self, name: str) -> ast.expr:
        return next(spelled for argument, spelled in self._annotated() if argument == name)

    def _annotated(self) -> list[tuple[str, ast.expr]]:
        """The annotated parameters with their annotations' expressions."""
        args = (*self.tree.args.posonlyargs, *self.tree.args.args, *self.tree.args.kwonlyargs)
        return [(arg.arg, _spelled(arg.annotation)) for arg in args if arg.annotation is not None]

    def annotated_with(self, *objects: Any) -> frozenset[str]:
        """The parameters whose annotation names one of ``objects``; nothing is evaluated."""
        named = ((argument, self.look_up(node)) for argument, node in self._annotated())
        return frozenset(argument for argument, found in named if any(found is one for one in objects))

    def defaults(self) -> dict[str, Any]:
        """Default values by parameter."""
        parameters = inspect.signature(self.function).parameters.values()
        return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}

    def _annotation_names(self, scope: FrameType | None) -> dict[str, Any]:
        """Names that only annotations use: they are no free variables of the compiled function, so they are
        taken from the scope that decorates it."""
        if scope is None or scope.f_locals is scope.f_globals:
            return {}
        found: dict[str, Any] = {}
        wanted = [name for name in _names_of_annotations(self.tree) if self._is_free(name)]
        while scope is not None:
            found = {**{name: scope.f_locals[name] for name in wanted if name in scope.f_locals}, **found}
            scope = _around(scope)
        return found

    def _is_free(self, name: str) -> bool:
        return name not in self._closure and name not in self.parameters

    def check_parameters(self) -> None:
        """Raise `SourceTypeError` unless every parameter has a name that callers may use."""
        args = self.tree.args
        if args.vararg is not None or args.kwarg is not None or args.posonlyargs:
            raise SourceTypeError(
                f"{self.name} has *args, **kwargs or positional-only parameters",
                place=self.place,
                remedy="name every parameter of a kernel; a decorator that wraps one goes above T.prim_func",
            )


def scope_of_caller(depth: int) -> FrameType | None:
    """The frame that decorates a function; only looked at while decorating, never kept."""
    try:
        return sys._getframe(depth + 1)
    except ValueError:
        return None


def _around(scope: FrameType) -> FrameType | None:
    """The running call of the function in whose text that of ``scope`` stands, if there is one."""
    frame = scope.f_back
    while frame is not None and scope.f_code not in frame.f_code.co_consts:
        frame = frame.f_back
    return None if frame is None or frame.f_locals is frame.f_globals else frame


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _EMPTY


def _names_of_annotations(tree: ast.FunctionDef) -> list[str]:
    args = tree.args
    found = [arg.annotation for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
    found += [node.annotation for node in nodes_of(tree) if isinstance(node, ast.AnnAssign)]
    names: list[str] = []
    for annotation in filter(None, found):
        for node in ast.walk(_spelled(annotation)):
            if isinstance(node, ast.Name) and node.id not in names:
                names.append(node.id)
    return names


def _spelled(annotation: ast.expr) -> ast.expr:
    """An annotation's expression; a text is what it spells, at the text's place."""
    if not isinstance(annotation, ast.Constant) or not isinstance(annotation.value, str):
        return annotation
    expression = ast.parse(annotation.value, mode="eval").body
    for part in ast.walk(expression):
        ast.copy_location(part, annotation)
    return expression


def _definition(function: FunctionType) -> ast.FunctionDef:
    code = function.__code__
    linecache.checkcache(code.co_filename)
    lines = linecache.getlines(code.co_filename, function.__globals__)
    found = _definitions("".join(lines)).get((code.co_name, code.co_firstlineno))
    if found is not None:
        return found
    if not lines and os.path.isfile(code.co_filename):
        raise SourceError(
            f"the source text of {function.__name__} cannot be read",
            place=Place(code.co_filename, code.co_firstlineno),
            why="its file holds bytes that are no UTF-8",
            remedy="save the file as UTF-8",
        )
    raise SourceError(
        f"the source text of {function.__name__} is not available",
        place=Place(code.co_filename, code.co_firstlineno),
        remedy="kernel functions must live in a file or a notebook cell",
    )


@lru_cache(maxsize=64)
def _twin_code(tree: ast.FunctionDef, free: tuple[str, ...], file: str, sets_attributes: bool) -> CodeType:
    """The code of a function's rewritten twin. Trees of one text are the same objects, so that all
    variants of a kernel share it."""
    return compile(rewrite(tree, list(free), file, sets_attributes), file, "exec", dont_inherit=True)


@lru_cache(maxsize=16)
def _definitions(text: str) -> dict[tuple[str, int], ast.FunctionDef]:
    """The functions of a module's text by their names and first lines."""
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    return {(node.name, _first(node)): node for node in reversed(functions)}


@lru_cache(maxsize=256)
def nodes_of(tree: ast.FunctionDef) -> tuple[ast.AST, ...]:
    """A function's definition and all nodes in it, as `ast.walk` finds them."""
    return tuple(ast.walk(tree))


def _first(node: ast.FunctionDef) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
