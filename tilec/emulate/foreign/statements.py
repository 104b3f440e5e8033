"""Statements of C over the lanes of a group: a method for each kind of node of the grammar."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from tree_sitter import Node

from tilec.backends.cuda.device.helper import C_TYPES
from tilec.emulate.foreign.assembly import Assembly
from tilec.emulate.foreign.expressions import PLACES, Held, Running
from tilec.emulate.foreign.memory import (
    VECTORS,
    Operand,
    Pointer,
    Scalar,
    Vector,
    element,
    variable,
    write,
)
from tilec.emulate.foreign.syntax import (
    CType,
    Declared,
    Function,
    declared,
    described,
    only,
    part,
    parts,
    text,
    unsupported,
)
from tilec.emulate.state.numbers import negated

Steps = Generator[str, None, None]
_CASTS = ("reinterpret_cast", "static_cast")
#: What makes a variable one of another memory.
_ELSEWHERE = ("extern", "__shared__", "__constant__", "__device__", "__managed__")


@dataclass(eq=False)
class Call(Assembly):
    """One call of a function."""

    result: Operand | None = None
    has_returned: bool = False

    def run(self, args: Sequence[Operand]) -> Running:
        """What the function returns for these arguments."""
        function, local = self.function.checked(), self.lanes.g.local
        if len(args) != len(function.params):
            raise unsupported(f"call with {len(args)} arguments", function.node)
        variables = len(local)
        try:
            for (kind, name), arg in zip(function.params, args, strict=True):
                self._parameter(kind, name, arg)
            yield from self._block(parts(part(function.node, "body")))
            for registers in local[variables:]:
                registers.forget()
        finally:
            del local[variables:]
        return self.result

    def _parameter(self, kind: CType, name: str, arg: Operand) -> None:
        if isinstance(arg, Pointer):
            self.names[name] = arg.typed(kind) if kind.is_reference else Held(arg.typed(kind))
        elif isinstance(arg, Scalar) and arg.dtype in ("map", "text"):
            self.names[name] = Held(arg)
        else:
            self._variable(kind, name, arg)

    def _variable(self, kind: CType, name: str, value: Scalar | Vector | None) -> None:
        given = value if isinstance(value, tuple) else () if value is None else (value,)
        dtype, lanes = (given[0].dtype, len(given)) if kind.name == "auto" else element(kind)
        self.names[name] = place = variable(self.lanes, name, dtype, lanes, 1)
        if value is not None:
            write(place, value, self.lanes)

    # ---- calls ----

    def call(self, node: Node) -> Running:
        """A call of a function: of the source, of CUDA, or of the C library; a cast; assembly."""
        if node.type == "gnu_asm_expression":
            yield from self.assembly(node)
            return None
        if len(parts(node)) != 2:
            raise unsupported("launch of a kernel", node)
        callee, args = part(node, "function"), parts(part(node, "arguments"))
        if callee.type == "parenthesized_expression":
            callee = only(callee)
        if callee.type == "lambda_expression":
            return (yield from self._inner(Function(callee), args))
        name = text(callee)
        if name in self.others:
            return (yield from self._inner(self.others[name], args))
        if name in C_TYPES or name in VECTORS:
            return self.converted(CType(name), only(part(node, "arguments")))
        if callee.type == "template_function" and text(part(callee, "name")) in _CASTS:
            kind = described(only(part(callee, "arguments")))
            return self.converted(kind, only(part(node, "arguments")))
        return (yield from self.function_of_others(name, args))

    def _inner(self, function: Function, args: list[Node]) -> Running:
        """A call of another function; a lambda sees the names around it."""
        if len(args) != len(function.checked().params):
            raise unsupported(f"call with {len(args)} arguments", function.node)
        operands = [
            self.place(arg) if kind.is_reference and arg.type in PLACES else self.value(arg)
            for (kind, _), arg in zip(function.params, args, strict=True)
        ]
        names = {} if function.name else dict(self.names)
        return (yield from Call(function, self.others, self.lanes, names).run(operands))

    # ---- statements ----

    def _block(self, body: Sequence[Node]) -> Steps:
        """Statements; names that they declare end with them."""
        outer, self.names = self.names, dict(self.names)
        for node in body:
            if self.has_returned:
                break
            yield from self._statement(node)
        self.names = outer

    def _statement(self, node: Node) -> Steps:
        run = getattr(self, f"_do_{node.type}", None)
        if run is None:
            raise unsupported(node.type.replace("_", " "), node)
        self.lanes.g.taint.lanes = None
        steps = run(node)
        if steps is not None:
            yield from steps

    def _do_compound_statement(self, node: Node) -> Steps:
        return self._block(parts(node))

    def _do_preproc_call(self, node: Node) -> None:
        if text(part(node, "directive")) != "#pragma":
            raise unsupported(text(node), node)

    def _do_expression_statement(self, node: Node) -> Any:
        for inner in parts(node):
            if inner.type in ("call_expression", "gnu_asm_expression"):
                return self.call(inner)
            self.effect(inner)
        return None

    def _do_return_statement(self, node: Node) -> None:
        if self.is_masked:
            raise unsupported("return inside a branch", node)
        kind = self.function.result
        for inner in parts(node):
            made = self.value(inner)
            if isinstance(made, Scalar) and kind.name != "auto":
                made = made.to(element(kind)[0])
            self.result = made
        self.has_returned = True

    def _do_declaration(self, node: Node) -> None:
        if any(text(each) in _ELSEWHERE for each in node.children):
            raise unsupported("variable of another memory", node)
        for each in node.children_by_field_name("declarator"):
            self._declare(declared(node, each))

    def _declare(self, made: Declared) -> None:
        kind, value = made.kind, made.value
        if value is not None and value.type == "argument_list":
            value = only(value)
        if made.is_array or (value is not None and value.type == "initializer_list"):
            self._array(made, None if value is None else parts(value))
            return
        if kind.is_reference and value is not None:
            self.names[made.name] = self.place(value)
            return
        given = None if value is None else self.value(value)
        if kind.is_pointer or isinstance(given, Pointer):
            self.names[made.name] = Held(given.typed(kind) if isinstance(given, Pointer) else given)
        else:
            self._variable(kind, made.name, given)

    def _array(self, made: Declared, values: list[Node] | None) -> None:
        """An array, or a variable that a list in braces fills; the rest of it is zero."""
        dtype, lanes = element(made.kind)
        given = None if values is None else [self.scalar(each) for each in values]
        count = len(given or ()) if made.is_array else 1
        if made.size is not None:
            count = self.scalar(made.size).value
        place = variable(self.lanes, made.name, dtype, lanes, count)
        self.names[made.name] = Held(place) if made.is_array else place
        if given is not None:
            first = Pointer(place.to, dtype)
            for at, item in enumerate(given + [Scalar(0, "int32")] * (lanes * count - len(given))):
                write(first.moved(at), item, self.lanes)

    # ---- branches and loops ----

    def _do_if_statement(self, node: Node) -> Steps:
        outer, test = self.lanes, self._branch(part(node, "condition"))
        orelse = node.child_by_field_name("alternative")
        for holds, body in ((test, part(node, "consequence")), (negated(test), orelse)):
            lanes = outer.under(holds) if body is not None else None
            if body is not None and lanes is not None:
                self.lanes = lanes
                yield from self._block(parts(body) if body.type == "else_clause" else [body])
        self.lanes = outer

    def _branch(self, node: Node) -> Any:
        """A condition that decides what runs."""
        test = self.test(node)
        self.lanes.g.taint.check(self.lanes.m, "decides a branch")
        return test

    def _do_for_statement(self, node: Node) -> Steps:
        outer, self.names = self.names, dict(self.names)
        init, step = node.child_by_field_name("initializer"), node.child_by_field_name("update")
        if init is not None and init.type == "declaration":
            self._do_declaration(init)
        elif init is not None:
            self.effect(init)
        yield from self._loop(node.child_by_field_name("condition"), part(node, "body"), step)
        self.names = outer

    def _do_while_statement(self, node: Node) -> Steps:
        return self._loop(part(node, "condition"), part(node, "body"), None)

    def _do_do_statement(self, node: Node) -> Steps:
        yield from self._block([part(node, "body")])
        yield from self._loop(part(node, "condition"), part(node, "body"), None)

    def _loop(self, cond: Node | None, body: Node, step: Node | None) -> Steps:
        outer = self.lanes
        while self._goes(cond):
            yield from self._block([body])
            if step is not None and not self.has_returned:
                self.effect(step)
        self.lanes = outer

    def _goes(self, cond: Node | None) -> bool:
        """Leaves the lanes that go on."""
        if self.has_returned:
            return False
        self.lanes.g.taint.lanes = None
        lanes = self.lanes if cond is None else self.lanes.under(self._branch(cond))
        self.lanes = lanes or self.lanes
        return lanes is not None
