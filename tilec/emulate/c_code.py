"""Device helpers (C with inline assembly) as Python source over the lanes of a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilec.emulate.c_assembly import HelperAssembly
from tilec.emulate.c_places import Variable, element
from tilec.emulate.c_syntax import CType, Node
from tilec.emulate.writer import Operand, Pointer, Value, Vector


@dataclass(eq=False)
class HelperCode(HelperAssembly):
    """Writes one call of a helper."""

    def call(self, args: Sequence[Operand]) -> Operand | None:
        """The result of the function for these arguments."""
        if len(args) != len(self.function.params):
            raise self._unsupported(f"{len(args)} arguments")
        for (kind, name), arg in zip(self.function.params, args, strict=True):
            self.variables[name] = self._parameter(kind, arg)
        self._block(self.function.body)
        return self.result

    def _parameter(self, kind: CType, arg: Operand) -> Variable:
        if isinstance(arg, Pointer):
            dtype, lanes = element(kind)
            if kind.reference:
                return Variable("", dtype, lanes, replace(arg, dtype=dtype))
            if kind.pointer == 0 and arg.space == "local":
                return replace(self._parameter(kind, self._read(arg)), origin=arg)
            typed = arg if kind.name == "void" else arg.typed(dtype, lanes)
            return Variable("", "pointer", 1, typed)
        if isinstance(arg, Vector):
            return Variable("", arg.parts[0].dtype, len(arg.parts), arg)
        dtype, _ = element(kind)
        return Variable("", dtype, 1, self._converted(Value(self.writer.hold(arg.code), arg.dtype), dtype))

    # ---- statements ----

    def _block(self, body: Sequence[Node]) -> None:
        for node in body:
            if self.result is not None:
                raise self._unsupported("code after a return")
            getattr(self, f"_do_{node.kind}")(*node.args)

    def _do_block(self, *body: Node) -> None:
        self._block(body)

    def _do_expr(self, value: Node) -> None:
        self.effect(value)

    def _do_return(self, value: Node | None) -> None:
        if value is None:
            return
        if self._masked:
            raise self._unsupported("return inside a branch")
        made = self.rvalue(value)
        kind = self.function.result
        if isinstance(made, Value) and kind.name not in ("auto", "void") and kind.pointer == 0:
            made = self._converted(made, element(kind)[0])
        self.result = made

    def _do_declare(self, kind: CType, name: str, count: Node | None, init: Node | None) -> None:
        dtype, lanes = element(kind)
        if count is not None:
            self._array(name, dtype, count, init)
            return
        if kind.pointer or (kind.name == "auto" and init is not None):
            value = self.rvalue(init) if init is not None else None
            if isinstance(value, Pointer) and kind.name != "auto":
                value = value.typed(dtype, lanes)
            self.variables[name] = Variable("", dtype, lanes, value)
            return
        if lanes > 1:
            value = self.rvalue(init) if init is not None else None
            self.variables[name] = Variable(self.writer.name("v"), dtype, lanes)
            self.writer.line(f"{self.variables[name].name} = {self._vector_code(value, lanes)}")
            return
        code = "None"
        if init is not None:
            code = self._converted(self._scalar(init), dtype).code
        made = Variable(self.writer.name("v"), dtype)
        self.writer.line(f"{made.name} = {code}")
        self.variables[name] = made

    def _array(self, name: str, dtype: str, count: Node, init: Node | None) -> None:
        size = self._constant(count)
        made = Variable(self.writer.name("v"), dtype, elements=size)
        given: Any = () if init is None else init.args
        items = [self._converted(self._scalar(item), dtype).code for item in given]
        items += ["None" if init is None else "0"] * (size - len(items))
        self.writer.line(f"{made.name} = [{', '.join(items)}]")
        self.variables[name] = made

    def _do_if(self, cond: Node, then: tuple[Node, ...], orelse: tuple[Node, ...]) -> None:
        outer, masked = self.writer.mask, self._masked
        yes, no = self.writer.name("m"), self.writer.name("m")
        self.writer.line(f"{yes}, {no} = sides({outer}, {self._scalar(cond).code})")
        self._masked = True
        for mask, body in ((yes, then), (no, orelse)):
            if body:
                with self.writer.inner(f"if {mask} is not NOBODY:", mask):
                    self._block(body)
        self._masked = masked

    def _do_for(self, init: tuple[Node, ...], cond: Node, step: Node | None, body: tuple[Node, ...]) -> None:
        self._block(init)
        self._loop(cond, body, step, tests_first=True)

    def _do_while(self, cond: Node, body: tuple[Node, ...]) -> None:
        self._loop(cond, body, None, tests_first=True)

    def _do_do(self, cond: Node, body: tuple[Node, ...]) -> None:
        self._loop(cond, body, None, tests_first=False)

    def _loop(self, cond: Node, body: tuple[Node, ...], step: Node | None, tests_first: bool) -> None:
        mask, masked = self.writer.name("m"), self._masked
        self.writer.line(f"{mask} = {self.writer.mask}")
        self._masked = True
        with self.writer.inner("while True:", mask):
            if tests_first:
                self._test(cond, mask)
            self._block(body)
            if step is not None:
                self.effect(step)
            if not tests_first:
                self._test(cond, mask)
        self._masked = masked

    def _test(self, cond: Node, mask: str) -> None:
        self.writer.line(f"{mask} = sides({mask}, {self._scalar(cond).code})[0]")
        self.writer.line(f"if {mask} is NOBODY: break")
