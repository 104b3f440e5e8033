"""Source and tile IR as lines that know each other's place."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilec.ir import nodes as ir
from tilec.ir.stmt import Stmt, walk
from tilec.ir.text.printer import Printer


@dataclass(frozen=True)
class Line:
    """A line of text, and the place in the author's files that it is of: "" or "<file>:<line>"."""

    text: str
    place: str = ""


@dataclass(frozen=True)
class Source:
    """The functions of one file that statements come from: lines with their numbers."""

    file: Path
    lines: tuple[tuple[int, str], ...]


class _PlacedPrinter(Printer):
    """Keeps for each line the statement's place that it prints, the innermost one's."""

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[int, str] = {}

    def stmt(self, stmt: Stmt) -> None:
        """One statement and what is in it."""
        first = len(self.lines)
        super().stmt(stmt)
        if stmt.loc is None:
            return
        for at in range(first, len(self.lines)):
            self.places.setdefault(at, f"{stmt.loc.file}:{stmt.loc.line}")


def tile_ir(kernel: ir.Kernel) -> list[Line]:
    """The text of a kernel; lines of statements that lowering made have the place of what they came from."""
    printer = _PlacedPrinter()
    printer.header(kernel)
    printer.block(kernel.body)
    return [Line(text, printer.places.get(at, "")) for at, text in enumerate(printer.lines)]


def sources(kernel: ir.Kernel) -> list[Source]:
    """The functions that the statements of a kernel were written in, file by file; files that cannot be read
    any more are left out."""
    lines: dict[str, set[int]] = {}
    for stmt in walk(kernel.body):
        if stmt.loc is not None:
            lines.setdefault(stmt.loc.file, set()).add(stmt.loc.line)
    return [source for file, found in lines.items() for source in _read(Path(file), found)]


def _read(file: Path, wanted: Iterable[int]) -> Iterator[Source]:
    try:
        text = file.read_text(encoding="utf-8")
        functions = _functions(ast.parse(text))
    except (OSError, ValueError, SyntaxError):
        return
    shown = {at for line in wanted for at in _around(line, functions)}
    rows = enumerate(text.splitlines(), 1)
    yield Source(file, tuple((number, row) for number, row in rows if number in shown))


def _functions(tree: ast.Module) -> list[range]:
    """The lines of each outermost function, its decorators first."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    spans = [
        range(min([each.lineno, *(one.lineno for one in each.decorator_list)]), (each.end_lineno or 0) + 1)
        for each in found
    ]
    return [span for span in spans if not any(_holds(other, span) for other in spans)]


def _holds(outer: range, inner: range) -> bool:
    return outer != inner and outer.start <= inner.start and inner.stop <= outer.stop


def _around(line: int, functions: Sequence[range]) -> range:
    return next((span for span in functions if line in span), range(line, line + 1))
