"""Tile IR as text: one line per statement, blocks indented, Python syntax throughout.

    kernel("scale", doc="y = alpha * x")
    n = dim(int32, div=16)
    x = tensor(float32, (n,), ("n",), access="in")
    alpha = scalar(float32)
    y = tensor(float32, (n,), ("n",), access="out")
    with launch((n + 255) // 256, threads=(128, 1, 1)) as (bx,):
        t = alloc(float32, (256,), "local.fragment")
        copy(x[bx * 256:+256], t[0:+256])
        for i in parallel(256):
            y[bx * 256 + i] = t[i] * alpha

A region is written ``start:+extent`` per axis. The text is a function of the kernel alone: variables get
their own names, numbered where two share one; source lines and hints that are no literals are left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from tvm.ir import Expr
from tvm.tirx import is_buffer_var

from tilec.ir import nodes as ir
from tilec.ir.exprs import dtype_of
from tilec.ir.text import barrier_text
from tilec.ir.text.expr_printer import ExprPrinter, format_expr
from tilec.ir.text.thread_text import WRITERS
from tilec.ir.text.words import UNARY, Names

if TYPE_CHECKING:
    from tilec.ir.layout import Digit, Layout

__all__ = ["Printer", "format_expr", "format_kernel", "format_layout", "register"]

Writer: TypeAlias = "Callable[[Printer, Any], None]"
_WRITERS: dict[type[ir.Stmt], Writer] = {**WRITERS, **barrier_text.WRITERS}


def format_kernel(kernel: ir.Kernel) -> str:
    """The text of a kernel; `tilec.ir.text.parser.parse_kernel` reads it back."""
    printer = Printer()
    printer.header(kernel)
    printer.block(kernel.body)
    return "\n".join(printer.lines) + "\n"


def format_layout(layout: Layout) -> str:
    """Digits as ``size:stride`` (``@space`` unless addr), least significant first; dimensions by commas. A
    swizzle follows as ``^ width:unit:row``."""
    text = ", ".join(" ".join(_digit(digit) for digit in dim) for dim in layout.digits)
    swizzle = layout.swizzle
    return text if swizzle is None else f"{text} ^ {swizzle.width}:{swizzle.unit}:{swizzle.row}"


def register(node: type[ir.Stmt]) -> Callable[[Writer], Writer]:
    """Decorator: the function writes statements of class ``node`` (for nodes that lowering adds)."""

    def add(writer: Writer) -> Writer:
        _WRITERS[node] = writer
        return writer

    return add


class Printer:
    """Collects lines. Writers call ``expr``, ``region``, ``name`` for parts; ``line``, ``nest`` to write."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names = Names()
        self._exprs = ExprPrinter(self.names)
        self._depth = 0

    def line(self, text: str) -> None:
        """One line at the current depth."""
        self.lines.append("    " * self._depth + text)

    def nest(self, head: str, body: ir.Block) -> None:
        """A line and an indented block under it."""
        self.line(head)
        self._depth += 1
        self.block(body)
        self._depth -= 1

    def block(self, body: ir.Block) -> None:
        """The statements of a block; ``pass`` for none."""
        for stmt in body:
            self.stmt(stmt)
        if not body and self._depth:
            self.line("pass")

    def stmt(self, stmt: ir.Stmt) -> None:
        """One statement, by the writer of its class or nearest base; field by field where there is none."""
        for cls in type(stmt).__mro__:
            if cls in _WRITERS:
                return _WRITERS[cls](self, stmt)
        return _write_fields(self, stmt)

    def expr(self, expr: Expr | int, level: int = 0) -> str:
        """An expression; ``level`` as in `ExprPrinter.text`."""
        return self._exprs.text(expr, level)

    def name(self, var: Any) -> str:
        """The identifier of a variable or buffer."""
        return self.names.of(var)

    def tuple(self, exprs: Iterable[Expr | int]) -> str:
        """Expressions as a Python tuple."""
        return _tuple(self.expr(expr) for expr in exprs)

    def region(self, region: ir.Region) -> str:
        """``buffer[start:+extent, ...]``."""
        axes = zip(region.start, region.extent, strict=True)
        inside = ", ".join(f"{self.expr(start)}:+{self.expr(extent, UNARY)}" for start, extent in axes)
        return f"{self.name(region.buffer)}[{inside or '()'}]"

    def header(self, kernel: ir.Kernel) -> None:
        """Name, dims and parameters."""
        options = repr(dict(kernel.options)) if kernel.options else ""
        doc = kernel.doc and _quoted(kernel.doc)
        self.line(_call("kernel", [_quoted(kernel.name)], doc=doc, options=options))
        for param in kernel.params:
            self.name(param.buffer if isinstance(param, ir.TensorParam) else param.var)
        for dim in kernel.dims:
            self._dim(dim)
        for param in kernel.params:
            self._tensor(param) if isinstance(param, ir.TensorParam) else self._scalar(param)

    def _dim(self, dim: ir.Dim) -> None:
        name = self.names.fresh(dim.name) if dim.var is None else self.name(dim.var)
        guard = {"eq": dim.guard.eq, "div": dim.guard.div, "min": dim.guard.min, "max": dim.guard.max}
        bounds = {key: str(value) for key, value in guard.items() if value != (1 if key == "div" else None)}
        dtype = [] if dim.var is None else [dtype_of(dim.var)]
        self.line(f"{name} = " + _call("dim", dtype, **bounds, name=_named(dim.name, name)))

    def _tensor(self, param: ir.TensorParam) -> None:
        buffer, name = param.buffer, self.name(param.buffer)
        parts = [str(buffer.dtype), self.tuple(buffer.shape), _texts(param.extents)]
        text = _call(
            "tensor",
            parts,
            strides=self.tuple(buffer.strides) if len(buffer.strides) else "",
            stride_texts="" if param.strides is None else _texts(param.strides),
            access=_quoted(param.access),
            output="True" if param.output else "",
            pointer="True" if param.pointer else "",
            name=_named(param.name, name),
        )
        self.line(f"{name} = {text}")

    def _scalar(self, param: ir.ScalarParam) -> None:
        name = self.name(param.var)
        default = "" if param.default is None else _literal(param.default)
        pointer, own = "True" if param.pointer else "", _named(param.name, name)
        text = _call("scalar", [dtype_of(param.var)], default=default, pointer=pointer, name=own)
        self.line(f"{name} = {text}")


@register(ir.Alloc)
def _alloc(out: Printer, stmt: ir.Alloc) -> None:
    buffer = stmt.buffer
    parts = [str(buffer.dtype), out.tuple(buffer.shape), _quoted(buffer.scope())]
    text = _call(
        "alloc",
        parts,
        strides=out.tuple(buffer.strides) if len(buffer.strides) else "",
        init="" if stmt.init is None else out.expr(stmt.init),
        layout="" if stmt.layout is None else _quoted(format_layout(stmt.layout)),
        place="" if stmt.place is None else _literal(stmt.place),
        asked="" if stmt.asked is None else _quoted(format_layout(stmt.asked.layout)),
    )
    out.line(f"{out.name(buffer)} = {text}")


@register(ir.Bind)
def _bind(out: Printer, stmt: ir.Bind) -> None:
    value = out.expr(stmt.value)
    out.line(f"{out.name(stmt.var)} = {value}")


@register(ir.Store)
def _store(out: Printer, stmt: ir.Store) -> None:
    out.line(f"{_element(out, stmt)} = {out.expr(stmt.value)}")


@register(ir.Atomic)
def _atomic(out: Printer, stmt: ir.Atomic) -> None:
    order = "" if stmt.order == "relaxed" else _quoted(stmt.order)
    text = _call(f"atomic_{stmt.kind}", [_element(out, stmt), out.expr(stmt.value)], order=order)
    out.line(text if stmt.prev is None else f"{out.name(stmt.prev)} = {text}")


def _element(out: Printer, stmt: ir.Store | ir.Atomic) -> str:
    indices = ", ".join(out.expr(index) for index in stmt.indices)
    return f"{out.name(stmt.buffer)}[{indices or '()'}]"


@register(ir.Copy)
def _copy(out: Printer, stmt: ir.Copy) -> None:
    out.line(_call("copy", [out.region(stmt.src), out.region(stmt.dst)], hints=_hints(stmt.hints)))


@register(ir.Fill)
def _fill(out: Printer, stmt: ir.Fill) -> None:
    out.line(_call("fill", [out.region(stmt.dst), out.expr(stmt.value)]))


@register(ir.Gemm)
def _gemm(out: Printer, stmt: ir.Gemm) -> None:
    text = _call(
        "gemm",
        [out.region(stmt.a), out.region(stmt.b), out.region(stmt.c)],
        trans_a="True" if stmt.trans_a else "",
        trans_b="True" if stmt.trans_b else "",
        clear=out.expr(stmt.clear),
        policy=str(stmt.policy) if stmt.policy else "",
    )
    out.line(text)


@register(ir.SparseGemm)
def _sparse_gemm(out: Printer, stmt: ir.SparseGemm) -> None:
    text = _call(
        "gemm_sp",
        [out.region(region) for region in (stmt.a, stmt.e, stmt.b, stmt.c)],
        **{name: "True" if getattr(stmt, name) else "" for name in ("trans_a", "trans_e", "trans_b")},
        clear=out.expr(stmt.clear),
        policy=str(stmt.policy) if stmt.policy else "",
    )
    out.line(text)


@register(ir.Reduce)
def _reduce(out: Printer, stmt: ir.Reduce) -> None:
    text = _call(
        f"reduce_{stmt.kind}",
        [out.region(stmt.src), out.region(stmt.dst)],
        axis=str(stmt.axis),
        clear=str(stmt.clear),
        nan_propagate="True" if stmt.nan_propagate else "",
    )
    out.line(text)


@register(ir.Scan)
def _scan(out: Printer, stmt: ir.Scan) -> None:
    text = _call(
        f"scan_{stmt.kind}",
        [out.region(stmt.src), out.region(stmt.dst)],
        axis=str(stmt.axis),
        reverse="True" if stmt.reverse else "",
    )
    out.line(text)


@register(ir.Parallel)
def _parallel(out: Printer, stmt: ir.Parallel) -> None:
    extents = [out.expr(extent) for extent in stmt.extents]
    text = _call("parallel", extents, dtypes=_dtypes(stmt.vars), hints=_hints(stmt.hints))
    _loop(out, stmt.vars, text, stmt.body)


@register(ir.Pipelined)
def _pipelined(out: Printer, stmt: ir.Pipelined) -> None:
    text = _call(
        "pipelined",
        [out.expr(stmt.start), out.expr(stmt.stop)],
        num_stages=str(stmt.num_stages) if stmt.num_stages else "",
        stage="" if stmt.stage is None else repr(tuple(stmt.stage)),
        order="" if stmt.order is None else repr(tuple(stmt.order)),
        dtypes=_dtypes((stmt.var,)),
    )
    _loop(out, (stmt.var,), text, stmt.body)


@register(ir.For)
def _for(out: Printer, stmt: ir.For) -> None:
    bounds = [out.expr(part) for part in (stmt.start, stmt.stop, stmt.step)]
    _loop(out, (stmt.var,), _call(stmt.kind, bounds, dtypes=_dtypes((stmt.var,))), stmt.body)


@register(ir.While)
def _while(out: Printer, stmt: ir.While) -> None:
    out.nest(f"while {out.expr(stmt.cond)}:", stmt.body)


@register(ir.If)
def _if(out: Printer, stmt: ir.If) -> None:
    out.nest(f"if {out.expr(stmt.cond)}:", stmt.then)
    if stmt.orelse:
        out.nest("else:", stmt.orelse)


@register(ir.Break)
def _break(out: Printer, stmt: ir.Break) -> None:
    out.line("break")


@register(ir.Continue)
def _continue(out: Printer, stmt: ir.Continue) -> None:
    out.line("continue")


@register(ir.Assume)
def _assume(out: Printer, stmt: ir.Assume) -> None:
    out.line(f"assume({out.expr(stmt.cond)})")


@register(ir.Check)
def _check(out: Printer, stmt: ir.Check) -> None:
    out.line(f"check({out.expr(stmt.cond)}, {stmt.text!r})")


@register(ir.Print)
def _print(out: Printer, stmt: ir.Print) -> None:
    out.line(f"print({', '.join([repr(stmt.text), *map(out.expr, stmt.values)])})")


@register(ir.Launch)
def _launch(out: Printer, stmt: ir.Launch) -> None:
    grid = [out.expr(extent) for extent in stmt.grid]
    head = _call(
        "launch", grid, threads=repr(tuple(stmt.threads)), hints=_hints(tuple(stmt.schedule.given.items()))
    )
    names = out.tuple(stmt.block_vars)
    names = f"({names}, {out.tuple(stmt.thread_vars)})" if stmt.thread_vars else names
    out.nest(f"with {head} as {names}:", stmt.body)


def _loop(out: Printer, variables: tuple[Any, ...], head: str, body: ir.Block) -> None:
    names = ", ".join(out.name(var) for var in variables)
    out.nest(f"for {names} in {head}:", body)


def _write_fields(out: Printer, stmt: ir.Stmt) -> None:
    """A node without a writer: its class and its fields, blocks nested under the names of their fields."""
    values = {item.name: getattr(stmt, item.name) for item in fields(stmt) if item.name != "loc"}
    blocks = {key: value for key, value in values.items() if _is_block(value)}
    parts = {key: _value(out, value) for key, value in values.items() if key not in blocks}
    head = _call("node", [type(stmt).__name__], **parts)
    if not blocks:
        return out.line(head)
    for key, body in blocks.items():
        out.nest(f"with {head}.{key}:", body)
        head = type(stmt).__name__
    return None


def _is_block(value: object) -> bool:
    return isinstance(value, tuple) and bool(value) and all(isinstance(item, ir.Stmt) for item in value)


def _value(out: Printer, value: object) -> str:
    """A field of an unknown node."""
    if isinstance(value, ir.Region):
        return out.region(value)
    if isinstance(value, Expr):
        return out.name(value) if is_buffer_var(value) else out.expr(value)
    if isinstance(value, (tuple, list)):
        return _tuple(_value(out, item) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        parts = {item.name: _value(out, getattr(value, item.name)) for item in fields(value)}
        return _call(type(value).__name__, [], **parts)
    return repr(value)


def _call(word: str, args: Iterable[str], **keywords: str) -> str:
    """``word(args, key=value)``; keywords with empty texts are left out."""
    given = [f"{key}={value}" for key, value in keywords.items() if value]
    return f"{word}({', '.join([*args, *given])})"


def _tuple(texts: Iterable[str]) -> str:
    items = list(texts)
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def _texts(texts: Iterable[str]) -> str:
    return _tuple(_quoted(text) for text in texts)


def _named(name: str, identifier: str) -> str:
    return "" if name == identifier else _quoted(name)


def _dtypes(variables: Iterable[Any]) -> str:
    dtypes = [dtype_of(var) for var in variables]
    return "" if set(dtypes) <= {"int32"} else _tuple(dtypes)


def _quoted(text: object) -> str:
    return json.dumps(str(text), ensure_ascii=False)


def _literal(value: object) -> str:
    """A Python literal; infinities and NaN as strings, which `float` reads."""
    if isinstance(value, (tuple, list)):
        return _tuple(_literal(item) for item in value)
    odd = isinstance(value, str) or repr(value) in ("inf", "-inf", "nan")
    return _quoted(value) if odd else repr(value)


def _hints(hints: tuple[tuple[str, object], ...]) -> str:
    """Hints that are literals, as a dict; the others mean nothing outside the process that made them."""
    kept = ", ".join(f"{_quoted(key)}: {_literal(value)}" for key, value in hints if _is_literal(value))
    return f"{{{kept}}}" if kept else ""


def _is_literal(value: object) -> bool:
    if isinstance(value, (tuple, list)):
        return all(_is_literal(item) for item in value)
    return value is None or type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value))


def _digit(digit: Digit) -> str:
    space = "" if digit.space == "addr" else f"@{digit.space}"
    return f"{digit.size}:{digit.stride}{space}"
