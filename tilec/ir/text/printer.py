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
their own names, numbered where two share one; source lines are left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any

from tvm.ir import Expr
from tvm.tirx import is_buffer_var

from tilec.ir import nodes as ir
from tilec.ir.exprs import dtype_of
from tilec.ir.hints import Hints
from tilec.ir.layout import Layout
from tilec.ir.schedule import Schedule
from tilec.ir.stmt import Memory, Part, blocks, children
from tilec.ir.text.expr_printer import ExprPrinter
from tilec.ir.text.forms import DTYPES, Argument, Form, flat, form_of, key_of, lambda_of
from tilec.ir.text.words import UNARY, Names

if TYPE_CHECKING:
    from tilec.ir.layout import Digit


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


class Printer:
    """Collects lines. ``expr``, ``region``, ``name`` are the texts of parts; ``line``, ``nest`` write."""

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
        """One statement."""
        writer = _WRITERS.get(type(stmt))
        return self._formed(stmt) if writer is None else writer(self, stmt)

    def _formed(self, stmt: ir.Stmt) -> None:
        """A statement in the form of its class (`tilec.ir.text.forms`)."""
        form, inner, text = form_of(type(stmt)), children(stmt), self.call(stmt)
        found = [getattr(stmt, part.name) for part in form.defines]
        names = ", ".join(self.name(var) for value in found for var in flat(value))
        if form.target is not None:
            names = self._value(getattr(stmt, form.target.name), form.target, stmt)
        if not inner:
            return self.line(f"{names} = {text}" if names else text)
        head = f"for {names} in {text}:" if names else f"with {text}:"
        if len(inner) == 1:
            return self.nest(head, inner[0])
        self.line(head)
        self._depth += 1
        for name, block in zip(blocks(type(stmt)), inner, strict=True):
            if block:
                self.nest(f"with {name}:", block)
        self._depth -= 1
        return None

    def call(self, owner: Any) -> str:
        """The word and the arguments of a statement, or of a part in its fields."""
        form, texts = form_of(type(owner)), []
        for argument in form.arguments:
            part = argument.part
            if part is DTYPES:
                texts += self._declared(owner, form)
                continue
            value = getattr(owner, part.name)
            if argument.has_default(value):
                continue
            found = [text for text in self._argument(value, argument, owner) if text]
            texts += [f"{argument.key}={text}" if argument.key else text for text in found]
        return f"{form.word(owner)}({', '.join(texts)})"

    def _argument(self, value: Any, argument: Argument, owner: Any) -> list[str]:
        part = argument.part
        if argument.raw:
            return [repr(value)]
        if argument.star:
            return [self._value(each, part, owner) for each in value]
        if part.name == lambda_of(type(owner)):
            names = ", ".join(self.name(var) for var in owner.vars)
            return [f"lambda {names}: {self.expr(value)}"]
        return [self._value(value, part, owner)]

    def _value(self, value: Any, part: Part, owner: Any) -> str:
        """A field, by the type that it has."""
        if isinstance(value, (tuple, list)):
            return _tuple(self._value(each, part, owner) for each in value)
        if isinstance(value, Expr):
            return self._named(value, part, owner)
        if isinstance(value, ir.Region):
            return self.region(value)
        if isinstance(value, Layout):
            return _quoted(format_layout(value))
        if isinstance(value, (Schedule, Hints)):
            return _asked(value.given)
        if is_dataclass(value):
            return self.name(key_of(value)) if part.word == "named" else self.call(value)
        return _literal(value)

    def _named(self, value: Any, part: Part, owner: Any) -> str:
        if part.word == "defines":
            return f"declare({', '.join([self.name(value), *self.declaration(value)])})"
        if part.at:
            indices = getattr(owner, part.at.name)
            return self.element(value, indices if part.at.several else (indices,))
        return self.name(value) if part.kind is Memory else self.expr(value)

    def _declared(self, stmt: Any, form: Form) -> list[str]:
        """The types of what a statement defines, where its other fields do not give them."""
        found = [var for part in form.defines for var in flat(getattr(stmt, part.name))]
        if form.declares:
            return []
        if not any(map(is_buffer_var, found)):
            dtypes = _dtypes(found)
            return [f"dtypes={dtypes}"] if dtypes else []
        return [f"declared={_tuple(self.declaration(var))}" for var in found]

    def declaration(self, var: Any) -> list[str]:
        """The type of a variable; the shape and the scope of a buffer, too."""
        if not is_buffer_var(var):
            return [dtype_of(var)]
        return [str(var.dtype), self.tuple(var.shape), _quoted(var.scope())]

    def element(self, buffer: Any, indices: Iterable[Expr]) -> str:
        """``buffer[indices]``."""
        return f"{self.name(buffer)}[{', '.join(map(self.expr, indices)) or '()'}]"

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


def _alloc(out: Printer, stmt: ir.Alloc) -> None:
    text = _call(
        "alloc",
        out.declaration(stmt.buffer),
        strides=out.tuple(stmt.buffer.strides) if len(stmt.buffer.strides) else "",
        init="" if stmt.init is None else out.expr(stmt.init),
        layout="" if stmt.layout is None else _quoted(format_layout(stmt.layout)),
        place="" if stmt.place is None else _literal(stmt.place),
        asked="" if stmt.asked is None else _quoted(format_layout(stmt.asked.layout)),
    )
    out.line(f"{out.name(stmt.buffer)} = {text}")


def _bind(out: Printer, stmt: ir.Bind) -> None:
    value = out.expr(stmt.value)
    out.line(f"{out.name(stmt.var)} = {value}")


def _store(out: Printer, stmt: ir.Store) -> None:
    out.line(f"{out.element(stmt.buffer, stmt.indices)} = {out.expr(stmt.value)}")


def _while(out: Printer, stmt: ir.While) -> None:
    out.nest(f"while {out.expr(stmt.cond)}:", stmt.body)


def _branch(out: Printer, stmt: ir.If) -> None:
    out.nest(f"if {out.expr(stmt.cond)}:", stmt.then)
    if stmt.orelse:
        out.nest("else:", stmt.orelse)


def _launch(out: Printer, stmt: ir.Launch) -> None:
    head = out.call(stmt)
    names = out.tuple(stmt.block_vars)
    names = f"({names}, {out.tuple(stmt.thread_vars)})" if stmt.thread_vars else names
    out.nest(f"with {head} as {names}:", stmt.body)


#: Statements in the syntax of Python.
_WRITERS: dict[type[ir.Stmt], Callable[[Printer, Any], None]] = {
    ir.Alloc: _alloc,
    ir.Bind: _bind,
    ir.Store: _store,
    ir.While: _while,
    ir.If: _branch,
    ir.Launch: _launch,
    ir.Break: lambda out, stmt: out.line("break"),
    ir.Continue: lambda out, stmt: out.line("continue"),
}


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


def _asked(given: Mapping[str, object]) -> str:
    """What is asked for, as a dict; layouts by their text."""
    texts = (
        (key, _quoted(format_layout(value)) if isinstance(value, Layout) else _literal(value))
        for key, value in given.items()
    )
    inner = ", ".join(f"{_quoted(key)}: {text}" for key, text in texts)
    return f"{{{inner}}}" if inner else ""


def _digit(digit: Digit) -> str:
    space = "" if digit.space == "addr" else f"@{digit.space}"
    return f"{digit.size}:{digit.stride}{space}"
