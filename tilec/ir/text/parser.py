"""Tile IR text back to a `Kernel`: the inverse of `tilec.ir.text.printer`, on Python's own grammar.

Text of nodes that lowering adds does not parse; neither do source lines and hints that the text leaves out.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from tvm import tirx

from tilec.errors import IRError, Place
from tilec.ir import nodes as ir
from tilec.ir.exprs import dtype_of
from tilec.ir.guards import Guard
from tilec.ir.layout import Digit, Layout, Swizzle
from tilec.ir.schedule import SCHEDULED, Schedule
from tilec.ir.text import barrier_text
from tilec.ir.text.expr_parser import ExprParser, dtype_name, fail
from tilec.ir.text.thread_text import ACTIONS, LANE_WORDS, REDUCE_WORD, read_lane, read_reduce

__all__ = ["parse_kernel", "parse_layout"]


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

    def _head(self, node: ast.stmt) -> _Call:
        call = _called(node.value) if isinstance(node, ast.Expr) else None
        if call is None or call.word != "kernel":
            raise fail(node, "the first line must be kernel(name)")
        return call

    def _declare_scalars(self, lines: list[tuple[ast.stmt, tuple[str, _Call] | None]]) -> None:
        for _, found in lines:
            if found is None or found[1].word not in ("dim", "scalar") or not found[1].args:
                continue
            name, call = found
            self.scope.setdefault(name, tirx.Var(name, dtype_name(call.args[0])))

    def _dim(self, name: str, call: _Call) -> ir.Dim:
        guard = Guard(*(call.literal(key, default) for key, default in _GUARD.items()))
        return ir.Dim(call.literal("name", name), self.scope[name] if call.args else None, guard)

    def _param(self, name: str, call: _Call) -> ir.Param:
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

    def _buffer(self, name: str, call: _Call, scope: str) -> tirx.Var:
        strides = [self.expr(item) for item in call.items("strides")]
        shape = [self.expr(item) for item in call.items(1)]
        dtype = dtype_name(call.arg(0))
        self.scope[name] = tirx.decl_buffer(shape, dtype, name, scope=scope, strides=strides or None)
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
        target = node.targets[0]
        if isinstance(target, ast.Subscript):
            indices = tuple(self.expr(item) for item in self.indices(target.slice))
            combined = _called(node.value)
            if combined is not None and combined.word == REDUCE_WORD:
                return read_reduce(self, self.variable(target.value), indices, combined)
            return ir.Store(self.variable(target.value), indices, self.expr(node.value))
        if not isinstance(target, ast.Name):
            raise fail(node, f"no statement of the IR: {ast.unparse(node)}")
        call = _called(node.value)
        if call is not None and call.word == "alloc":
            return self._alloc(target.id, call)
        if call is not None and call.word in _ATOMICS:
            return self._atomic(call, target.id)
        if call is not None and call.word in LANE_WORDS:
            return read_lane(self, target.id, call)
        if call is not None and call.word == barrier_text.ALLOC_WORD:
            return barrier_text.read_alloc(self, target.id, call)
        value = self.expr(node.value)
        self.scope[target.id] = tirx.Var(target.id, dtype_of(value))
        return ir.Bind(self.scope[target.id], value)

    def _alloc(self, name: str, call: _Call) -> ir.Alloc:
        init, layout = call.keywords.get("init"), call.literal("layout", None)
        value = None if init is None else self.expr(init)
        buffer = self._buffer(name, call, call.literal(2))
        place, asked = call.literal("place", None), call.literal("asked", None)
        wanted = asked and ir.AskedLayout(parse_layout(asked))
        return ir.Alloc(buffer, value, layout and parse_layout(layout), place, wanted)

    def _action(self, node: ast.Expr) -> ir.Stmt:
        call = _called(node.value)
        reader = None if call is None else _ACTIONS.get(call.word)
        if call is None or reader is None:
            raise fail(node, f"no statement of the IR: {ast.unparse(node)}")
        return reader(self, call)

    def _copy(self, call: _Call) -> ir.Copy:
        return ir.Copy(self.region(call.arg(0)), self.region(call.arg(1)), call.hints())

    def _fill(self, call: _Call) -> ir.Fill:
        return ir.Fill(self.region(call.arg(0)), self.expr(call.arg(1)))

    def _gemm(self, call: _Call) -> ir.Gemm:
        a, b, c = (self.region(call.arg(place)) for place in range(3))
        trans = call.literal("trans_a", False), call.literal("trans_b", False)
        return ir.Gemm(a, b, c, *trans, self.expr(call.keywords["clear"]), call.literal("policy", 0))

    def _sparse_gemm(self, call: _Call) -> ir.SparseGemm:
        a, e, b, c = (self.region(call.arg(place)) for place in range(4))
        trans_a, trans_e, trans_b = (call.literal(f"trans_{part}", False) for part in "aeb")
        clear, policy = self.expr(call.keywords["clear"]), call.literal("policy", 0)
        return ir.SparseGemm(a, e, b, c, trans_a, trans_e, trans_b, clear, policy)

    def _reduce(self, call: _Call) -> ir.Reduce:
        src, dst = self.region(call.arg(0)), self.region(call.arg(1))
        kind = call.word.removeprefix("reduce_")
        nan = call.literal("nan_propagate", False)
        return ir.Reduce(kind, src, dst, call.literal("axis", None), call.literal("clear", None), nan)

    def _atomic(self, call: _Call, prev: str | None = None) -> ir.Atomic:
        place = call.arg(0)
        if not isinstance(place, ast.Subscript):
            raise fail(place, f"expected an element, found {ast.unparse(place)}")
        buffer = self.variable(place.value)
        indices = tuple(self.expr(item) for item in self.indices(place.slice))
        value, order = self.expr(call.arg(1)), call.literal("order", "relaxed")
        if prev is not None:
            self.scope[prev] = tirx.Var(prev, str(buffer.dtype))
        old = None if prev is None else self.scope[prev]
        return ir.Atomic(call.word.removeprefix("atomic_"), buffer, indices, value, old, order)

    def _scan(self, call: _Call) -> ir.Scan:
        src, dst = self.region(call.arg(0)), self.region(call.arg(1))
        kind = call.word.removeprefix("scan_")
        return ir.Scan(kind, src, dst, call.literal("axis", None), call.literal("reverse", False))

    def _assume(self, call: _Call) -> ir.Assume:
        return ir.Assume(self.expr(call.arg(0)))

    def _check(self, call: _Call) -> ir.Check:
        return ir.Check(self.expr(call.arg(0)), call.literal(1))

    def _print(self, call: _Call) -> ir.Print:
        return ir.Print(call.literal(0), tuple(self.expr(arg) for arg in call.args[1:]))

    def _loop(self, node: ast.For) -> ir.Stmt:
        call = _called(node.iter)
        if call is None or call.word not in ("parallel", "pipelined", *ir.FOR_KINDS):
            raise fail(node, f"no loop of the IR: {ast.unparse(node.iter)}")
        bounds = [self.size(arg) if call.word == "parallel" else self.expr(arg) for arg in call.args]
        variables = self._define(node.target, [dtype_name(item) for item in call.items("dtypes")])
        body = self.block(node.body)
        if call.word == "parallel":
            return ir.Parallel(variables, tuple(bounds), body, call.hints())
        if call.word in ir.FOR_KINDS:
            start, stop, step = bounds
            return ir.For(call.word, variables[0], start, stop, step, body)
        start, stop = bounds
        stages = call.literal("num_stages", 0)
        stage, order = call.literal("stage", None), call.literal("order", None)
        return ir.Pipelined(variables[0], start, stop, body, stages, stage, order)

    def _define(self, target: ast.AST, dtypes: list[str]) -> tuple[Any, ...]:
        names = [item.id for item in self.indices(target) if isinstance(item, ast.Name)]
        variables = tuple(
            tirx.Var(name, dtype) for name, dtype in zip(names, dtypes or ["int32"] * len(names), strict=True)
        )
        self.scope.update(zip(names, variables, strict=True))
        return variables

    def _while(self, node: ast.While) -> ir.While:
        return ir.While(self.expr(node.test), self.block(node.body))

    def _if(self, node: ast.If) -> ir.If:
        return ir.If(self.expr(node.test), self.block(node.body), self.block(node.orelse))

    def _with(self, node: ast.With) -> ir.Stmt:
        call = _called(node.items[0].context_expr)
        if call is not None and call.word == barrier_text.GROUP_WORD:
            return barrier_text.read_group(self, call, node.body)
        return self._launch(node)

    def _launch(self, node: ast.With) -> ir.Launch:
        item = node.items[0]
        call = _called(item.context_expr)
        if call is None or call.word != "launch" or item.optional_vars is None:
            raise fail(node, f"no block of the IR: {ast.unparse(item)}")
        grid = tuple(self.size(arg) for arg in call.args)
        named = self.indices(item.optional_vars)
        with_threads = len(named) == 2 and all(isinstance(part, ast.Tuple) for part in named)
        blocks, threads = named if with_threads else (item.optional_vars, ast.Tuple([]))
        variables, indices = self._define(blocks, []), self._define(threads, [])
        body = self.block(node.body)
        return ir.Launch(grid, variables, call.literal("threads", None), body, _schedule(node, call), indices)

    def _break(self, node: ast.Break) -> ir.Break:
        return ir.Break()

    def _continue(self, node: ast.Continue) -> ir.Continue:
        return ir.Continue()


class _Call:
    """``word(args, key=value)`` with access to literal parts."""

    def __init__(self, node: ast.Call, word: str) -> None:
        self.node, self.word, self.args = node, word, node.args
        self.keywords = {item.arg: item.value for item in node.keywords if item.arg}

    def arg(self, place: int) -> ast.expr:
        """The positional argument at ``place``."""
        if place >= len(self.args):
            raise fail(self.node, f"{self.word} needs {place + 1} arguments")
        return self.args[place]

    def literal(self, key: int | str, default: Any = None) -> Any:
        """A Python literal: by position, or by keyword with a default."""
        node = self.arg(key) if isinstance(key, int) else self.keywords.get(key)
        return default if node is None else ast.literal_eval(node)

    def items(self, key: int | str) -> list[ast.expr]:
        """The entries of a tuple argument; none for a missing keyword."""
        node = self.arg(key) if isinstance(key, int) else self.keywords.get(key)
        if node is not None and not isinstance(node, ast.Tuple):
            raise fail(node, f"expected a tuple, found {ast.unparse(node)}")
        return [] if node is None else node.elts

    def hints(self) -> tuple[tuple[str, object], ...]:
        """The ``hints`` keyword."""
        return tuple(self.literal("hints", {}).items())


def _schedule(node: ast.With, call: _Call) -> Schedule:
    """What a launch asks for; IRError for a key that there is not."""
    given = call.literal("hints", {})
    unknown = next((key for key in given if key not in SCHEDULED), None)
    if unknown is not None:
        raise fail(node, f"no launch asks for {unknown}")
    return Schedule(**given)


_PARAMS = ("tensor", "scalar")
_ATOMICS = tuple(f"atomic_{kind}" for kind in ir.ATOMIC_KINDS)
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
_ACTIONS: dict[str, Callable[[_Parser, _Call], ir.Stmt]] = {
    "copy": _Parser._copy,
    "fill": _Parser._fill,
    "gemm": _Parser._gemm,
    "gemm_sp": _Parser._sparse_gemm,
    "assume": _Parser._assume,
    "check": _Parser._check,
    "print": _Parser._print,
    **{f"reduce_{kind}": _Parser._reduce for kind in ir.REDUCE_KINDS},
    **{f"scan_{kind}": _Parser._scan for kind in ir.SCAN_KINDS},
    **dict.fromkeys(_ATOMICS, _Parser._atomic),
    **ACTIONS,
    **barrier_text.ACTIONS,
}


def _called(node: ast.AST) -> _Call | None:
    """The call that ``node`` is, of a bare word."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _Call(node, node.func.id)
    return None


def _definition(node: ast.stmt) -> tuple[str, _Call] | None:
    """``name = dim(...)`` and its like at the top of the text."""
    if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
        return None
    call = _called(node.value)
    known = call is not None and call.word in ("dim", "alloc", *_PARAMS)
    return (node.targets[0].id, call) if known and call is not None else None


def _default(value: Any, dtype: str) -> Any:
    """A scalar's default; infinities and NaN stand in strings."""
    return float(value) if isinstance(value, str) and dtype.startswith(("float", "bfloat")) else value
