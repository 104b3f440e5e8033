"""Tile IR text back to a `Kernel`: the inverse of `tilec.ir.text.printer`, on Python's own grammar.

Statements that lowering adds parse where their classes are imported. Source lines are not in the
text.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Any

from tvm import tirx
from tvm.tirx import is_buffer_var

from tilec.errors import IRError, Place
from tilec.ir import nodes as ir
from tilec.ir.exprs import as_expr, dtype_of, same_all
from tilec.ir.guards import Guard
from tilec.ir.hints import ASKED, Hints
from tilec.ir.layout import Digit, Layout, Swizzle
from tilec.ir.schedule import SCHEDULED, Schedule
from tilec.ir.stmt import Memory, Part, Required, Value, blocks, parts
from tilec.ir.text.calls import Call, asked_of, called
from tilec.ir.text.expr_parser import ExprParser, dtype_name, fail
from tilec.ir.text.forms import DTYPES, Form, form_of, key_of, statements


def parse_kernel(text: str) -> ir.Kernel:
    """The kernel that ``text`` spells; `format_kernel` of it gives ``text`` back.

    Raises:
        IRError: with the line, where the text is no kernel.
    """
    try:
        module = ast.parse(text)
    except SyntaxError as error:
        raise IRError(f"no tile IR text: {error.msg}", place=Place("tile IR", error.lineno)) from error
    return _Parser().kernel(module)


def parse_layout(text: str) -> Layout:
    """The layout of a text such as ``"32:1 2:8192, 64:32"`` (see `tilec.ir.text.printer.format_layout`)."""
    digits, _, swizzle = text.partition("^")
    dims = tuple(tuple(_digit(item) for item in dim.split()) for dim in digits.split(","))
    return Layout(dims, Swizzle(*map(int, swizzle.split(":"))) if swizzle else None)


def _digit(text: str) -> Digit:
    places, _, space = text.partition("@")
    size, stride = places.split(":")
    return Digit(int(size), int(stride), space or "addr")


class _Parser(ExprParser):
    """Statements; names are defined as the text goes, dims and scalars ahead of everything."""

    def __init__(self) -> None:
        super().__init__()
        self._words = statements()
        self._parts: dict[tuple[type, Any], Any] = {}

    def kernel(self, module: ast.Module) -> ir.Kernel:
        """The whole text."""
        if not module.body:
            raise IRError("the text of a kernel is empty")
        head = self._head(module.body[0])
        lines = [(node, _definition(node)) for node in module.body[1:]]
        self._declare_scalars(lines)
        dims = tuple(self._dim(*found) for _, found in lines if found and found[1].word == "dim")
        params = tuple(self._param(*found) for _, found in lines if found and found[1].word in _PARAMS)
        body = tuple(self.stmt(node) for node, found in lines if not found or found[1].word == "alloc")
        options = tuple(head.literal("options", {}).items())
        return ir.Kernel(head.literal(0), params, dims, body, head.literal("doc", ""), options)

    def _head(self, node: ast.stmt) -> Call:
        call = called(node.value) if isinstance(node, ast.Expr) else None
        if call is None or call.word != "kernel":
            raise fail(node, "the first line must be kernel(name)")
        return call

    def _declare_scalars(self, lines: list[tuple[ast.stmt, tuple[str, Call] | None]]) -> None:
        for _, found in lines:
            if found is None or found[1].word not in ("dim", "scalar") or not found[1].args:
                continue
            name, call = found
            self.scope.setdefault(name, tirx.Var(name, dtype_name(call.args[0])))

    def _dim(self, name: str, call: Call) -> ir.Dim:
        guard = Guard(*(call.literal(key, default) for key, default in _GUARD.items()))
        return ir.Dim(call.literal("name", name), self.scope[name] if call.args else None, guard)

    def _param(self, name: str, call: Call) -> ir.Param:
        own = call.literal("name", name)
        if call.word == "scalar":
            var = self.scope[name]
            default = _default(call.literal("default", None), dtype_of(var))
            return ir.ScalarParam(own, var, default, call.literal("pointer", False))
        strides = call.literal("stride_texts", None)
        buffer = self._buffer(name, call, "global")
        extents, access = call.literal(2), call.literal("access", "in")
        output, pointer = call.literal("output", False), call.literal("pointer", False)
        return ir.TensorParam(own, buffer, extents, strides, access, output, pointer)

    def _buffer(self, name: str, call: Call, scope: str) -> tirx.Var:
        strides = [self.expr(item) for item in call.items("strides")]
        shape = [self.expr(item) for item in call.items(1)]
        return self._memory(name, dtype_name(call.arg(0)), shape, scope, strides)

    def _memory(self, name: str, dtype: str, shape: list[Any], scope: str, strides: Any = ()) -> tirx.Var:
        """A buffer; the one that has the name already where blocks beside each other define the same."""
        shape = [as_expr(size) for size in shape]
        known = self.scope.get(name)
        if known is None or not is_buffer_var(known) or not same_all(tuple(known.shape), tuple(shape)):
            self.scope[name] = tirx.decl_buffer(shape, dtype, name, scope=scope, strides=strides or None)
        return self.scope[name]

    def _name(self, name: str, dtype: str) -> tirx.Var:
        """A variable, likewise."""
        known = self.scope.get(name)
        if known is None or is_buffer_var(known) or dtype_of(known) != dtype:
            self.scope[name] = tirx.Var(name, dtype)
        return self.scope[name]

    def block(self, nodes: list[ast.stmt]) -> ir.Block:
        """The statements of a block, without ``pass``."""
        return tuple(self.stmt(node) for node in nodes if not isinstance(node, ast.Pass))

    def stmt(self, node: ast.stmt) -> ir.Stmt:
        """One statement."""
        reader = _STATEMENTS.get(type(node))
        if reader is None:
            raise fail(node, f"no statement of the IR: {ast.unparse(node)}")
        try:
            return reader(self, node)
        except (ValueError, TypeError, KeyError, SyntaxError) as error:
            raise fail(node, f"cannot read {ast.unparse(node).splitlines()[0]}: {error}") from error

    def region(self, node: ast.AST) -> ir.Region:
        """``buffer[start:+extent, ...]``."""
        if not isinstance(node, ast.Subscript):
            raise fail(node, f"expected a region, found {ast.unparse(node)}")
        axes = [self._axis(item) for item in self.indices(node.slice)]
        return ir.Region(self.variable(node.value), tuple(a for a, _ in axes), tuple(b for _, b in axes))

    def _axis(self, node: ast.AST) -> tuple[Any, Any]:
        extent = node.upper if isinstance(node, ast.Slice) else None
        plus = isinstance(extent, ast.UnaryOp) and isinstance(extent.op, ast.UAdd)
        if not plus or node.lower is None:  # type: ignore[attr-defined]
            raise fail(node, f"expected start:+extent, found {ast.unparse(node)}")
        return self.expr(node.lower), self.size(extent.operand)  # type: ignore[attr-defined,union-attr]

    def size(self, node: ast.AST) -> Any:
        """An extent: an int where the text has one, else an expression."""
        return node.value if isinstance(node, ast.Constant) else self.expr(node)

    def _assign(self, node: ast.Assign) -> ir.Stmt:
        target, call = node.targets[0], called(node.value)
        if call is not None and call.word in self._words:
            return self._formed(call, target)
        if isinstance(target, ast.Subscript):
            return ir.Store(*self._element(target), self.expr(node.value))
        if not isinstance(target, ast.Name):
            raise fail(node, f"no statement of the IR: {ast.unparse(node)}")
        if call is not None and call.word == "alloc":
            return self._alloc(target.id, call)
        value = self.expr(node.value)
        return ir.Bind(self._name(target.id, dtype_of(value)), value)

    def _element(self, node: ast.AST) -> tuple[Any, tuple[Any, ...]]:
        if not isinstance(node, ast.Subscript):
            raise fail(node, f"expected an element, found {ast.unparse(node)}")
        return self.variable(node.value), tuple(self.expr(item) for item in self.indices(node.slice))

    def _alloc(self, name: str, call: Call) -> ir.Alloc:
        init, layout = call.keywords.get("init"), call.literal("layout", None)
        value = None if init is None else self.expr(init)
        buffer = self._buffer(name, call, call.literal(2))
        place, asked = call.literal("place", None), call.literal("asked", None)
        wanted = None if asked is None else ir.AskedLayout(parse_layout(asked))
        return ir.Alloc(buffer, value, None if layout is None else parse_layout(layout), place, wanted)

    def _action(self, node: ast.Expr) -> ir.Stmt:
        return self._formed(self._known(node.value, node))

    def _loop(self, node: ast.For) -> ir.Stmt:
        return self._formed(self._known(node.iter, node), node.target, node.body)

    def _known(self, node: ast.AST, whole: ast.stmt) -> Call:
        call = called(node)
        if call is None or call.word not in self._words:
            raise fail(whole, f"no statement of the IR: {ast.unparse(whole).splitlines()[0]}")
        return call

    # Statements in the form of their class

    def _formed(
        self, call: Call, target: ast.AST | None = None, body: list[ast.stmt] | None = None
    ) -> ir.Stmt:
        kind, key = self._words[call.word]
        form = form_of(kind)
        values: dict[str, Any] = {"kind": key} if key else {}
        if form.target is not None and target is not None:
            values |= self._at(target, form.target)
        if form.operands is not None:
            values[form.operands.name] = self._operands(call, values)
        values |= self._arguments(call, kind)
        if form.target is None:
            given = kind.declared(**values) if form.declares else ()
            values |= self._defined(target, form, call, given)
        made: ir.Stmt = kind(**values, **self._blocks(kind, body or []))
        return made

    def _arguments(self, call: Call, kind: Any) -> dict[str, Any]:
        """The fields among the arguments of a call."""
        values: dict[str, Any] = {}
        left = list(call.args)
        for argument in form_of(kind).arguments:
            part = argument.part
            if argument.star:
                values[part.name], left = tuple(self._value(node, part) for node in left), []
                continue
            node = call.keywords.get(argument.key) if argument.key else next(iter(left), None)
            left = left if argument.key else left[1:]
            if part is not DTYPES:
                values |= self._missing(part, call) if node is None else self._at(node, part)
        return values

    def _missing(self, part: Part, call: Call) -> dict[str, Any]:
        if part.default is not Required:
            return {}
        if type(None) in part.types or bool in part.types:
            return {part.name: None if type(None) in part.types else False}
        raise fail(call.node, f"{call.word} needs {part.name}")

    def _at(self, node: ast.AST, part: Part) -> dict[str, Any]:
        """A field, and the one with its indices."""
        if not part.at:
            return {part.name: self._value(node, part)}
        buffer, indices = self._element(node)
        return {part.name: buffer, part.at.name: indices if part.at.several else indices[0]}

    def _value(self, node: ast.AST, part: Part) -> Any:
        """A field, by the type that it has."""
        if isinstance(node, ast.Constant) and node.value is None:
            return None
        if part.kind is Layout:
            return parse_layout(ast.literal_eval(node))
        if part.kind is Schedule:
            return Schedule(**asked_of(node, SCHEDULED))
        if part.kind is Hints:
            return _hints(node)
        if isinstance(node, ast.Tuple) and part.kind is not object:
            return tuple(self._value(each, part) for each in node.elts)
        if part.word == "named":
            return self._parts[part.kind, self.variable(node)]
        if part.word == "defines":
            return self._declare(node)
        if part.kind is ir.Region:
            return self.region(node)
        if is_dataclass(part.kind):
            return self._part(node, part)
        if part.kind is Value:
            return self.size(node) if int in part.types else self.expr(node)
        return self.variable(node) if part.kind is Memory else ast.literal_eval(node)

    def _part(self, node: ast.AST, part: Part) -> Any:
        """A dataclass in a field."""
        call = called(node)
        kinds: dict[str, Any] = {form_of(kind).words[""]: kind for kind in part.types if is_dataclass(kind)}
        if call is None or call.word not in kinds:
            raise fail(node, f"expected one of {', '.join(kinds)}, found {ast.unparse(node)}")
        kind = kinds[call.word]
        made = kind(**self._arguments(call, kind))
        if any(each.kind is Memory for each in parts(kind)):
            self._parts[kind, key_of(made)] = made
        return made

    def _declare(self, node: ast.AST) -> Any:
        """``declare(name, dtype, ...)`` among the arguments."""
        call = called(node)
        if call is None or call.word != "declare" or not isinstance(call.arg(0), ast.Name):
            raise fail(node, f"expected a declaration, found {ast.unparse(node)}")
        return self._declared(call.arg(0).id, [dtype_name(call.arg(1)), *call.args[2:]])  # type: ignore[attr-defined]

    def _declared(self, name: str, types: list[Any]) -> Any:
        """A name: a variable of a dtype, or a buffer of a dtype, a shape and a scope."""
        dtype, *others = types
        if not others:
            return self._name(name, dtype)
        shape, scope = others
        shape = [self.expr(item) for item in shape.elts] if isinstance(shape, ast.Tuple) else shape
        return self._memory(
            name, dtype, shape, ast.literal_eval(scope) if isinstance(scope, ast.AST) else scope
        )

    def _defined(self, target: Any, form: Form, call: Call, given: Any) -> dict[str, Any]:
        """The names that a statement defines; ``given``: what its class says of them."""
        names = [] if target is None else [item.id for item in self.indices(target)]  # type: ignore[attr-defined]
        if given and names:
            types = [given]
        elif "declared" in call.keywords:
            dtype, *others = call.items("declared")
            types = [[dtype_name(dtype), *others]]
        else:
            types = [[dtype_name(item)] for item in call.items("dtypes")] or [["int32"]] * len(names)
        made = [self._declared(name, list(each)) for name, each in zip(names, types, strict=True)]
        found: dict[str, Any] = {}
        for part in form.defines:
            take = len(made) if part.several else 1
            found[part.name] = tuple(made) if part.several else next(iter(made), None)
            made = made[take:]
        return found

    def _operands(self, call: Call, values: dict[str, Any]) -> tuple[Any, ...]:
        """The names of a function among the arguments, for its expression."""
        function = call.arg(0)
        if not isinstance(function, ast.Lambda):
            raise fail(call.node, f"{call.word} needs a function of operands")
        dtype = str(values["buffer"].dtype)
        names = tuple(self._name(item.arg, dtype) for item in function.args.args)
        call.args[0] = function.body
        return names

    def _blocks(self, kind: Any, body: list[ast.stmt]) -> dict[str, Any]:
        names = blocks(kind)
        if len(names) < 2:
            return {name: self.block(body) for name in names}
        inner = {
            ast.unparse(node.items[0].context_expr): node.body for node in body if isinstance(node, ast.With)
        }
        return {name: self.block(inner.get(name, [])) for name in names}

    def _while(self, node: ast.While) -> ir.While:
        return ir.While(self.expr(node.test), self.block(node.body))

    def _if(self, node: ast.If) -> ir.If:
        return ir.If(self.expr(node.test), self.block(node.body), self.block(node.orelse))

    def _with(self, node: ast.With) -> ir.Stmt:
        item = node.items[0]
        call = self._known(item.context_expr, node)
        return self._formed(call, None, node.body) if item.optional_vars is None else self._launch(call, node)

    def _launch(self, call: Call, node: ast.With) -> ir.Launch:
        named = self.indices(node.items[0].optional_vars)  # type: ignore[arg-type]
        with_threads = len(named) == 2 and all(isinstance(part, ast.Tuple) for part in named)
        pairs = [part.elts for part in named] if with_threads else [named, []]  # type: ignore[attr-defined]
        values = self._arguments(call, ir.Launch)
        variables, indices = (tuple(self._name(item.id, "int32") for item in part) for part in pairs)  # type: ignore[union-attr]
        return ir.Launch(**values, block_vars=variables, thread_vars=indices, body=self.block(node.body))

    def _break(self, node: ast.Break) -> ir.Break:
        return ir.Break()

    def _continue(self, node: ast.Continue) -> ir.Continue:
        return ir.Continue()


def _hints(node: ast.AST) -> Hints:
    """What a copy or a loop asks for."""
    given = asked_of(node, ASKED)
    layout = given.pop("loop_layout", None)
    return Hints(**given, loop_layout=layout and parse_layout(layout))


_PARAMS = ("tensor", "scalar")
_GUARD: dict[str, int | None] = {"eq": None, "div": 1, "min": None, "max": None}
_STATEMENTS: dict[type, Callable[[_Parser, Any], ir.Stmt]] = {
    ast.Assign: _Parser._assign,
    ast.Expr: _Parser._action,
    ast.For: _Parser._loop,
    ast.While: _Parser._while,
    ast.If: _Parser._if,
    ast.With: _Parser._with,
    ast.Break: _Parser._break,
    ast.Continue: _Parser._continue,
}


def _definition(node: ast.stmt) -> tuple[str, Call] | None:
    """``name = dim(...)`` and its like at the top of the text."""
    if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
        return None
    call = called(node.value)
    known = call is not None and call.word in ("dim", "alloc", *_PARAMS)
    return (node.targets[0].id, call) if known and call is not None else None


def _default(value: Any, dtype: str) -> Any:
    """A scalar's default; infinities and NaN stand in strings."""
    return float(value) if isinstance(value, str) and dtype.startswith(("float", "bfloat")) else value
