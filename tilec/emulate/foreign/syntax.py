"""The C of device helpers, parsed: the subset that generated code and code generation's own helpers use.

A helper is one function: declarations, assignments, loops, inline assembly, calls. `parse_function` gives its
syntax tree, or raises UnsupportedError with the text it cannot read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

from tilec.backends.cuda.device.helper import C_TYPES
from tilec.errors import UnsupportedError

#: C spelling of vectors -> (dtype, count).
VECTORS: dict[str, tuple[str, int]] = {
    f"{name}{count}": (dtype, count)
    for name, dtype in (
        ("char", "int8"), ("uchar", "uint8"), ("short", "int16"), ("ushort", "uint16"), ("int", "int32"),
        ("uint", "uint32"), ("longlong", "int64"), ("ulonglong", "uint64"), ("float", "float32"),
        ("double", "float64"), ("half", "float16"),
    )
    for count in (1, 2, 3, 4)
}  # fmt: skip
_WORDS = {word for name in C_TYPES for word in name.split()} | set(VECTORS) | {"auto"}
_QUALIFIERS = {
    "const", "volatile", "static", "inline", "__device__", "__forceinline__", "__restrict__", "extern",
    "__noinline__", "constexpr",
}  # fmt: skip


@dataclass(frozen=True)
class CType:
    """A type: ``name`` a C spelling, ``pointer`` levels, a reference or not."""

    name: str
    pointer: int = 0
    reference: bool = False


@dataclass(frozen=True)
class Node:
    """A part of the tree: ``kind`` with its parts in ``args``."""

    kind: str
    args: tuple[object, ...] = ()


@dataclass(frozen=True)
class Function:
    """A helper."""

    name: str
    result: CType
    params: tuple[tuple[CType, str], ...]
    body: tuple[Node, ...]


_TOKEN = re.compile(
    r"""\s*(?:
      (?P<skip>//[^\n]*|/\*.*?\*/|\#[^\n]*)
    | (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<number>0[xX][0-9a-fA-F]+[uUlL]*|(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?[uUlLfF]*)
    | (?P<name>[A-Za-z_]\w*)
    | (?P<op><<=|>>=|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||->|::|[-+*/%&|^]=|[-+*/%&|^~!<>=?:;,.(){}\[\]])
    )""",
    re.VERBOSE | re.DOTALL,
)
_BINARY = {
    "||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 7, ">": 7, "<=": 7, ">=": 7, "<<": 8,
    ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "%": 10,
}  # fmt: skip
_ASSIGN = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="}


def tokens(text: str) -> list[tuple[str, str]]:
    """The words of a C text, as (kind, text)."""
    found, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _unread(text, text[at : at + 30])
        at = match.end()
        kind = match.lastgroup or ""
        if kind != "skip":
            found.append((kind, match.group(kind)))
    return found


def _unread(text: str, near: str) -> UnsupportedError:
    first = text.strip().splitlines()[0] if text.strip() else ""
    return UnsupportedError(
        f"the emulator cannot read a function near {near!r}",
        why=f"the function starts with: {first}",
        remedy="write it with the C that tilec.emulate.foreign.syntax parses, or extend that file",
    )


@lru_cache(maxsize=4096)
def parse_functions(source: str) -> dict[str, Function]:
    """The functions of a source text by name."""
    parser = _Parser(source)
    found = {}
    while parser.at < len(parser.words):
        function = parser.function()
        found[function.name] = function
    return found


@dataclass
class _Parser:
    source: str
    words: list[tuple[str, str]] = field(init=False)
    at: int = 0

    def __post_init__(self) -> None:
        self.words = tokens(self.source)

    # ---- words ----

    def peek(self, ahead: int = 0) -> str:
        place = self.at + ahead
        return self.words[place][1] if place < len(self.words) else ""

    def kind(self, ahead: int = 0) -> str:
        place = self.at + ahead
        return self.words[place][0] if place < len(self.words) else ""

    def take(self, expected: str | None = None) -> str:
        text = self.peek()
        if not text or (expected is not None and text != expected):
            raise _unread(self.source, f"{text} (expected {expected})")
        self.at += 1
        return text

    def accept(self, text: str) -> bool:
        if self.peek() != text or self.kind() == "string":
            return False
        self.at += 1
        return True

    # ---- types ----

    def is_type(self) -> bool:
        ahead = 0
        while self.peek(ahead) in _QUALIFIERS:
            ahead += 1
        return self.kind(ahead) == "name" and self.peek(ahead) in _WORDS

    def type(self) -> CType:
        words = []
        while self.peek() in _QUALIFIERS or self.peek() in _WORDS:
            word = self.take()
            if word in _WORDS:
                words.append(word)
            if word in VECTORS:
                break
        while self.peek() in _QUALIFIERS:
            self.take()
        name = " ".join(words)
        if name not in C_TYPES and name not in VECTORS and name != "auto":
            raise _unread(self.source, name or self.peek())
        pointer = 0
        while self.peek() in ("*", *_QUALIFIERS):
            pointer += self.take() == "*"
        return CType(name, pointer, self.accept("&"))

    # ---- functions ----

    def function(self) -> Function:
        result = self.type()
        name = self.take()
        params = self.params()
        return Function(name, result, params, self.block())

    def params(self) -> tuple[tuple[CType, str], ...]:
        self.take("(")
        found = []
        while not self.accept(")"):
            kind = self.type()
            found.append((kind, self.take() if self.kind() == "name" else ""))
            self.accept(",")
        return tuple(found)

    def block(self) -> tuple[Node, ...]:
        self.take("{")
        found = []
        while not self.accept("}"):
            found += self.statement()
        return tuple(found)

    def body(self) -> tuple[Node, ...]:
        return self.block() if self.peek() == "{" else tuple(self.statement())

    # ---- statements ----

    def statement(self) -> list[Node]:
        if self.peek() == "{":
            return [Node("block", self.block())]
        word = self.peek()
        simple = {"if": self.if_, "for": self.for_, "while": self.while_, "do": self.do, "asm": self.asm}
        if word in simple:
            return [simple[word]()]
        if self.accept(";"):
            return []
        if self.accept("return"):
            value = None if self.peek() == ";" else self.expression()
            self.take(";")
            return [Node("return", (value,))]
        if self.is_type() and self.peek(1) != "(":
            return self.declaration()
        value = self.expression()
        self.take(";")
        return [Node("expr", (value,))]

    def declaration(self) -> list[Node]:
        kind = self.type()
        found = []
        while True:
            while self.accept("*"):
                kind = CType(kind.name, kind.pointer + 1)
            name, count, init = self.take(), None, None
            if self.accept("["):
                count = self.expression()
                self.take("]")
            if self.accept("="):
                init = self.initial()
            found.append(Node("declare", (kind, name, count, init)))
            if not self.accept(","):
                break
        self.take(";")
        return found

    def initial(self) -> Node:
        if not self.accept("{"):
            return self.assignment()
        items = []
        while not self.accept("}"):
            items.append(self.assignment())
            self.accept(",")
        return Node("list", tuple(items))

    def if_(self) -> Node:
        self.take("if")
        self.take("(")
        cond = self.expression()
        self.take(")")
        then = self.body()
        return Node("if", (cond, then, self.body() if self.accept("else") else ()))

    def for_(self) -> Node:
        self.take("for")
        self.take("(")
        init = tuple(self.statement())
        cond = self.expression() if self.peek() != ";" else Node("number", ("1",))
        self.take(";")
        step = self.expression() if self.peek() != ")" else None
        self.take(")")
        return Node("for", (init, cond, step, self.body()))

    def while_(self) -> Node:
        self.take("while")
        self.take("(")
        cond = self.expression()
        self.take(")")
        return Node("while", (cond, self.body()))

    def do(self) -> Node:
        self.take("do")
        body = self.body()
        self.take("while")
        self.take("(")
        cond = self.expression()
        self.take(")")
        self.take(";")
        return Node("do", (cond, body))

    def asm(self) -> Node:
        self.take("asm")
        self.accept("volatile")
        self.take("(")
        template = ""
        while self.kind() == "string":
            template += _unquoted(self.take())
        sections: list[tuple[tuple[str, Node], ...]] = []
        while self.peek() in (":", "::"):
            sections += [()] if self.take() == "::" else []
            sections.append(self.constraints())
        self.take(")")
        self.take(";")
        padded = [*sections, (), ()]
        return Node("asm", (template, padded[0], padded[1]))

    def constraints(self) -> tuple[tuple[str, Node], ...]:
        found = []
        while self.kind() == "string":
            text = _unquoted(self.take())
            if self.accept("("):
                found.append((text, self.expression()))
                self.take(")")
            self.accept(",")
        return tuple(found)

    # ---- expressions ----

    def expression(self) -> Node:
        value = self.assignment()
        while self.accept(","):
            value = Node("comma", (value, self.assignment()))
        return value

    def assignment(self) -> Node:
        left = self.ternary()
        if self.peek() in _ASSIGN and self.kind() == "op":
            op = self.take()
            right = self.assignment()
            if op != "=":
                right = Node("binary", (op[:-1], left, right))
            return Node("assign", (left, right))
        return left

    def ternary(self) -> Node:
        cond = self.binary(1)
        if not self.accept("?"):
            return cond
        yes = self.assignment()
        self.take(":")
        return Node("ternary", (cond, yes, self.assignment()))

    def binary(self, least: int) -> Node:
        left = self.unary()
        while self.kind() == "op" and _BINARY.get(self.peek(), 0) >= least:
            op = self.take()
            left = Node("binary", (op, left, self.binary(_BINARY[op] + 1)))
        return left

    def unary(self) -> Node:
        word = self.peek()
        if self.kind() == "op" and word in ("-", "+", "!", "~", "*", "&"):
            self.take()
            return Node("unary", (word, self.unary()))
        if word in ("++", "--"):
            self.take()
            return self.step(self.unary(), word)
        if word in ("reinterpret_cast", "static_cast"):
            self.take()
            self.take("<")
            kind = self.type()
            self.take(">")
            self.take("(")
            value = self.expression()
            self.take(")")
            return self.postfix(Node("cast", (kind, value)))
        if word == "(" and self._casts():
            self.take("(")
            kind = self.type()
            self.take(")")
            return Node("cast", (kind, self.unary()))
        return self.postfix(self.primary())

    def _casts(self) -> bool:
        self.at += 1
        found = self.is_type()
        self.at -= 1
        return found

    def step(self, place: Node, word: str) -> Node:
        return Node("assign", (place, Node("binary", (word[0], place, Node("number", ("1",))))))

    def postfix(self, value: Node) -> Node:
        while True:
            if self.accept("["):
                value = Node("index", (value, self.expression()))
                self.take("]")
            elif self.accept("("):
                value = Node("call", (value, self.arguments()))
            elif self.accept("."):
                value = Node("member", (value, self.take()))
            elif self.peek() in ("++", "--"):
                value = self.step(value, self.take())
            else:
                return value

    def arguments(self) -> tuple[Node, ...]:
        found = []
        while not self.accept(")"):
            found.append(self.assignment())
            self.accept(",")
        return tuple(found)

    def primary(self) -> Node:
        kind, word = self.kind(), self.peek()
        if self.accept("("):
            value = self.expression()
            self.take(")")
            return value
        if self.accept("["):
            return self.closure()
        if kind == "number":
            return Node("number", (self.take(),))
        if kind == "string":
            return Node("string", (_unquoted(self.take()),))
        if kind == "name" and word in _WORDS:
            made = self.type()
            self.take("(")
            value = self.expression()
            self.take(")")
            return Node("cast", (made, value))
        if kind == "name":
            return Node("name", (self.take(),))
        raise _unread(self.source, word)

    def closure(self) -> Node:
        self.take("]")
        params = self.params()
        return Node("lambda", (Function("", CType("auto"), params, self.block()),))


def _unquoted(text: str) -> str:
    return text[1:-1].replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"').replace("\\\\", "\\")
