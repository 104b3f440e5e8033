"""The expressions of a kernel function, rewritten so that names and logic go through an `Activation`."""

from __future__ import annotations

import ast
from typing import Any

from tilec.errors import UnsupportedError
from tilec.language.values.kernel.places import place_of_node

#: The name of the activation in rewritten code.
RUNTIME = "__tilec_rt"

#: Operators as an `Activation` takes them.
SYMBOLS: dict[type, str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.LShift: "<<", ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.Pow: "**",
    ast.MatMult: "@", ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.In: "in", ast.NotIn: "not in", ast.Is: "is", ast.IsNot: "is not",
}  # fmt: skip
_REFUSED: dict[type, tuple[str, str]] = {
    ast.AsyncFunctionDef: ("a nested async def", "use a @T.macro"),
    ast.ClassDef: ("a class", "define it outside the kernel"),
    ast.Yield: ("yield", "use a loop"),
    ast.YieldFrom: ("yield from", "use a loop"),
    ast.Await: ("await", "kernels are not asynchronous"),
    ast.AsyncFor: ("async for", "use for"),
    ast.AsyncWith: ("async with", "use with"),
    ast.Global: ("global", "pass the value as a parameter"),
    ast.Nonlocal: ("nonlocal", "pass the value as a parameter"),
}


def parameter_names(function: ast.FunctionDef) -> list[str]:
    """The parameters in order, keyword-only ones behind the others, ``*args`` and ``**kwargs`` last."""
    args = function.args
    collecting = [arg for arg in (args.vararg, args.kwarg) if arg is not None]
    return [arg.arg for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs, *collecting)]


class StoredNames(ast.NodeVisitor):
    """The names that a function's own statements assign, those of inner scopes left out."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def visit_Name(self, node: ast.Name) -> None:
        """Note an assigned name."""
        if isinstance(node.ctx, ast.Store):
            self.names.add(node.id)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """The name of a nested function."""
        self.names.add(node.name)

    def _inner(self, node: ast.AST) -> None:
        """Comprehensions and lambdas bind names of their own."""

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_Lambda = _inner


class ExpressionRewriter(ast.NodeTransformer):
    """Rewrites expressions. ``local_names`` are the names that the function itself binds."""

    def __init__(self, local_names: set[str], file: str) -> None:
        self._file = file
        self._locals = local_names
        self._shadowed: list[set[str]] = []
        self._operand_depth = 0

    def visit(self, node: ast.AST) -> Any:
        """Refuse what kernels cannot hold, rewrite the rest."""
        if type(node) in _REFUSED:
            what, remedy = _REFUSED[type(node)]
            raise self._refuse(node, what, remedy)
        return super().visit(node)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """A read of a local name."""
        hidden = any(node.id in names for names in self._shadowed)
        if not isinstance(node.ctx, ast.Load) or node.id not in self._locals or hidden:
            return node
        return self._call(node, "load", ast.Constant(node.id), node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        """``and`` and ``or``."""
        symbol = "and" if isinstance(node.op, ast.And) else "or"
        first, *rest = node.values
        return self._call(node, "logical", ast.Constant(symbol), self.visit(first), *map(self._lazy, rest))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        """``not``; other operators stay."""
        operand = self.visit(node.operand)
        if isinstance(node.op, ast.Not):
            return self._call(node, "negation", operand)
        return ast.copy_location(ast.UnaryOp(node.op, operand), node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        """A conditional expression."""
        cond = self.visit(node.test)
        return self._call(node, "ternary", cond, self._lazy(node.body), self._lazy(node.orelse))

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """Comparisons, chained ones and ``in`` included."""
        links = [
            ast.Tuple([ast.Constant(SYMBOLS[type(op)]), self._lazy(operand)], ast.Load())
            for op, operand in zip(node.ops, node.comparators, strict=True)
        ]
        return self._call(node, "compare", self.visit(node.left), *links)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.expr:
        """A walrus is an assignment, outside of operands that are made lazy."""
        if self._operand_depth:
            raise self._refuse(node, "a walrus in an operand", "assign in a statement of its own")
        wish = self._call(node, "wish", ast.Constant(node.target.id))
        node.value = self._method(node, wish, "bind", ast.Constant(node.target.id), self.visit(node.value))
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        """The parameters hide names of the function."""
        args = node.args
        names = {arg.arg for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs)}
        names |= {arg.arg for arg in (args.vararg, args.kwarg) if arg is not None}
        args.defaults = [self.visit(value) for value in args.defaults]
        args.kw_defaults = [value and self.visit(value) for value in args.kw_defaults]
        node.body = self._within(names, node.body)
        return node

    def visit_ListComp(self, node: Any) -> ast.expr:
        """The targets hide names of the function; the first iterable is outside."""
        stored = StoredNames()
        for generator in node.generators:
            stored.visit(generator.target)
        first = self.visit(node.generators[0].iter)
        node.generators[0].iter = ast.Constant(None)
        self._shadowed.append(stored.names)
        result = self.generic_visit(node)
        self._shadowed.pop()
        result.generators[0].iter = first  # type: ignore[attr-defined]
        return result  # type: ignore[return-value]

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp

    def _expr(self, node: ast.expr) -> ast.expr:
        made: ast.expr = self.visit(node)
        return made

    def _lazy(self, node: ast.expr) -> ast.expr:
        """The operand as a function of no arguments: evaluated only if it is reached."""
        self._operand_depth += 1
        body = self.visit(node)
        self._operand_depth -= 1
        args = ast.arguments([], [], None, [], [], None, [])
        return ast.copy_location(ast.Lambda(args, body), node)

    def _within(self, names: set[str], node: ast.expr) -> ast.expr:
        self._shadowed.append(names)
        self._operand_depth += 1
        result: ast.expr = self.visit(node)
        self._operand_depth -= 1
        self._shadowed.pop()
        return result

    def _call(self, node: ast.AST, method: str, *args: ast.expr) -> ast.Call:
        return self._method(node, ast.Name(RUNTIME, ast.Load()), method, *args)

    def _method(self, node: ast.AST, subject: ast.expr, method: str, *args: ast.expr) -> ast.Call:
        call = ast.Call(ast.Attribute(subject, method, ast.Load()), list(args), [])
        for part in (call, call.func, *args):
            ast.copy_location(part, part if hasattr(part, "lineno") else node)
        return call

    def _refuse(self, node: Any, what: str, remedy: str) -> UnsupportedError:
        place = place_of_node(self._file, node, what)
        return UnsupportedError(f"{what} is not supported in a kernel", place=place, remedy=remedy)
