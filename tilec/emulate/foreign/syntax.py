"""Sources of authors, parsed by tree-sitter: functions, declarations, types, texts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import tree_sitter_cuda
from tree_sitter import Language, Node, Parser

from tilec.errors import UnsupportedError

_PARSER = Parser(Language(tree_sitter_cuda.language()))
#: What functions stand in. Templates and conditions of the preprocessor are not read, guards of headers are.
_SCOPES = ("translation_unit", "linkage_specification", "declaration_list", "namespace_definition", "ERROR")
_QUALIFIERS = ("const", "volatile")


def text(node: Node) -> str:
    """The source of a node."""
    return (node.text or b"").decode()


def unsupported(what: str, node: Node) -> UnsupportedError:
    """The error for something that is not read."""
    return UnsupportedError(
        f"the emulator has no {what}",
        why=f"line {node.start_point.row + 1} of the source of a function has it: {text(node)}",
        remedy="write it without, or add it to tilec/emulate/foreign",
    )


def part(node: Node, name: str) -> Node:
    """A part that such a node has."""
    found = node.child_by_field_name(name)
    if found is None:
        raise unsupported(f"{node.type.replace('_', ' ')} without {name}", node)
    return found


def parts(node: Node) -> list[Node]:
    """The parts of a list, comments left out."""
    return [each for each in node.named_children if each.type != "comment"]


def only(node: Node) -> Node:
    """The one part of a node."""
    found = parts(node)
    if len(found) != 1:
        raise unsupported(f"{node.type.replace('_', ' ')} of {len(found)} parts", node)
    return found[0]


def string(node: Node) -> str:
    """What a string literal, or several in a row, stand for."""
    if node.type == "escape_sequence":
        return text(node).encode().decode("unicode_escape")
    if node.type in ("string_content", "raw_string_content"):
        return text(node)
    return "".join(string(each) for each in node.named_children)


@dataclass(frozen=True)
class CType:
    """A type: ``name`` a C spelling."""

    name: str
    is_pointer: bool = False
    is_reference: bool = False


@dataclass(frozen=True)
class Declared:
    """A declarator with its type; ``size`` of an array, ``value`` that it starts with."""

    kind: CType
    name: str
    is_array: bool
    size: Node | None
    value: Node | None


def declared(node: Node, declarator: Node | None) -> Declared:
    """One declarator of a declaration, a parameter, a function, or the descriptor of a type."""
    levels: list[str] = []
    name, size, value = "", None, None
    while declarator is not None:
        levels.append(declarator.type.removeprefix("abstract_").removesuffix("_declarator"))
        size = size or declarator.child_by_field_name("size")
        value = value or declarator.child_by_field_name("value")
        name = text(declarator) if declarator.type == "identifier" else name
        inner = [each for each in parts(declarator) if each.type.endswith(("declarator", "identifier"))]
        declarator = inner[0] if inner else None
    if levels.count("pointer") + levels.count("array") > 1:
        raise unsupported("pointers to pointers, arrays of arrays or of pointers", node)
    words = [word for word in text(part(node, "type")).split() if word not in _QUALIFIERS]
    kind = CType(" ".join(words), "pointer" in levels, "reference" in levels)
    return Declared(kind, name, "array" in levels, size, value)


def described(node: Node) -> CType:
    """The type of a cast."""
    return declared(node, node.child_by_field_name("declarator")).kind


@dataclass(frozen=True)
class Function:
    """A definition of a function, or a lambda."""

    node: Node

    @cached_property
    def _head(self) -> Node | None:
        head = self.node.child_by_field_name("declarator")
        while head is not None and head.child_by_field_name("parameters") is None:
            head = head.child_by_field_name("declarator")
        return head

    @property
    def name(self) -> str:
        """Its name, "" for a lambda."""
        named = self._head and self._head.child_by_field_name("declarator")
        return text(named) if named else ""

    @cached_property
    def result(self) -> CType:
        """What it returns."""
        return declared(self.node, part(self.node, "declarator")).kind if self.name else CType("auto")

    @cached_property
    def params(self) -> tuple[tuple[CType, str], ...]:
        """The type and the name of each parameter; arrays are pointers."""
        listed = part(self._head, "parameters") if self._head else None
        if listed is None or text(listed) == "(void)":
            return ()
        found = [declared(each, each.child_by_field_name("declarator")) for each in parts(listed)]
        return tuple(
            (CType(each.kind.name, is_pointer=True) if each.is_array else each.kind, each.name)
            for each in found
        )

    def checked(self) -> Function:
        """Itself. UnsupportedError where its source is no C++."""
        node = self.node
        while inner := [each for each in node.children if each.has_error]:
            node = inner[0]
        if node.has_error:
            raise UnsupportedError(
                f"the emulator cannot read the function {self.name}",
                why=f"line {node.start_point.row + 1} of its source is no CUDA C++ near: {text(node)}",
                remedy="macros are not expanded; in conditions, write casts as (unsigned)x, not unsigned(x)",
            )
        return self


@lru_cache(maxsize=1024)
def functions(source: str) -> dict[str, Function]:
    """The functions of a source text by name. UnsupportedError for several of one name."""
    found: dict[str, Function] = {}
    waiting = [_PARSER.parse(source.encode()).root_node]
    while waiting:
        node = waiting.pop()
        if node.type in _SCOPES or (node.type == "preproc_ifdef" and text(node).startswith("#ifndef")):
            waiting += node.named_children
        if node.type != "function_definition":
            continue
        function = Function(node)
        if function.name in found:
            raise unsupported(f"overloads: there are two functions {function.name}", node)
        found[function.name] = function
    return found
