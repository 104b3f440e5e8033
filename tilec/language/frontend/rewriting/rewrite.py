"""The author's function as an AST, rewritten so that names and control flow go through an `Activation`.

    x = e                 ->  x = rt.wish("x").bind("x", e)
    for i in range(n): .. ->  loop = rt.loop(rt.callee(range)(n), "i")
                              for item in loop: i = rt.bind("i", item); ..
                              loop.close()
    if c: .. else: ..     ->  b = rt.branch(c)
                              if b.then(): ..
                              if b.orelse(): ..
                              b.close()
    if c: x = e else: f(x)    s = rt.sides("x"), in front; in ``orelse``, around what is there,
                              if s.turns("x"): x = s.held("x")
                              if s.leaves("x"): x = s.held("x")
    while c: ..           ->  if rt.enter_while(rt.open_while(), c): ..; rt.leave_while()
    a and b, a if c else b->  rt.logical("and", lambda: a, lambda: b), rt.ternary(c, lambda: a, lambda: b)

Every line keeps its number, so that tracebacks, errors and statements point at the author's file. Nothing but
the ``for`` loops and ``with`` blocks of the author nests, so Python's limit of nested blocks is the author's
own.
"""

from __future__ import annotations

import ast
import copy

from tilec.language.frontend.rewriting.rewrite_expressions import (
    RUNTIME,
    SYMBOLS,
    ExpressionRewriter,
    StoredNames,
    parameter_names,
)

_TEMPORARY = "__tilec_t"
_TWIN = "__tilec_kernel"
#: What the title of a target ends with that is part of a buffer.
OF_SLICES = "[:]"


def rewrite(
    function: ast.FunctionDef, free: list[str], file: str, sets_attributes: bool = False
) -> ast.Module:
    """A module with one function ``make(free names...)`` that returns the rewritten function; that one takes
    the activation and then the author's parameters by position. ``sets_attributes``: it may assign to
    attributes."""
    body = Rewriter(function, file, sets_attributes).body()
    names = parameter_names(function)
    inner = _function(_TWIN, [RUNTIME, *names], body, function)  # its own name may be free: recursion
    outer = _function("make", free, [inner, ast.Return(ast.Name(_TWIN, ast.Load()))], function)
    module = ast.Module([outer], [])
    return ast.fix_missing_locations(module)


def _function(name: str, params: list[str], body: list[ast.stmt], origin: ast.AST) -> ast.FunctionDef:
    args = ast.arguments([], [ast.arg(param) for param in params], None, [], [], None, [])
    made = ast.parse("def f(): pass").body[0]
    assert isinstance(made, ast.FunctionDef)
    made.name, made.args, made.body = name, args, body
    return ast.copy_location(made, origin)


class Rewriter(ExpressionRewriter):
    """Rewrites the body of one function."""

    def __init__(self, function: ast.FunctionDef, file: str, sets_attributes: bool = False) -> None:
        self._function = copy.deepcopy(function)
        stored = StoredNames()
        for stmt in self._function.body:
            stored.visit(stmt)
        super().__init__(stored.names | set(parameter_names(function)), file)
        self._loops: list[str] = []
        self._sets_attributes = sets_attributes
        self._count = 0

    def body(self) -> list[ast.stmt]:
        """The rewritten statements, the parameters announced first."""
        first = [self._announce(name) for name in parameter_names(self._function)]
        return first + self._block(_without_docstring(self._function.body))

    # Assignments ------------------------------------------------------------------------------------------

    def visit_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        """``a = e`` and ``a = b = e``."""
        if len(node.targets) == 1:
            return self._assign(node.targets[0], self.visit(node.value), node)
        shared = self._temporary()
        wish = self._call(node, "wish", *self._names(node.targets[0]))
        stmts = [self._set(shared, self._method(node, wish, "once", self.visit(node.value)), node)]
        for target in node.targets:
            stmts += self._assign(target, ast.Name(shared, ast.Load()), node)
        return stmts

    def visit_AnnAssign(self, node: ast.AnnAssign) -> list[ast.stmt]:
        """``a: kind`` declares a parameter; with a value the annotation means nothing."""
        if node.value is not None:
            value = self._call(node, "typed", self.visit(node.value), self._lazy(node.annotation))
            return self._assign(node.target, value, node)
        declares = isinstance(node.target, ast.Name) and node.target.id in parameter_names(self._function)
        if not declares:
            return [ast.copy_location(ast.Pass(), node)]
        name = node.target.id  # type: ignore[union-attr]
        call = self._call(node, "annotate", ast.Constant(name), self._annotation(node.annotation))
        return [self._set(name, call, node)]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> list[ast.stmt]:
        """``def f(x): return e`` is ``f = lambda x: e``."""
        first, *others = _without_docstring(node.body) or node.body
        if others or node.decorator_list or not isinstance(first, ast.Return) or first.value is None:
            remedy = "let it be one `return` of a value, or put a @T.macro outside the kernel"
            raise self._refuse(node, "a nested def of other statements than a return", remedy)
        spelled = ast.copy_location(ast.Lambda(node.args, first.value), node)
        return self._assign(ast.Name(node.name, ast.Store()), self.visit(spelled), node)

    def visit_AugAssign(self, node: ast.AugAssign) -> list[ast.stmt]:
        """``a += e``; the container and the index of an element are evaluated once."""
        value = self.visit(node.value)
        if isinstance(node.target, ast.Attribute) and self._sets_attributes:
            return self._assign(node.target, self._combined(node, node.target, value), node)
        if isinstance(node.target, ast.Attribute):
            raise self._refuse(node, "assignment to an attribute", "use a name or an element")
        if isinstance(node.target, ast.Subscript):
            symbol = ast.Constant(SYMBOLS[type(node.op)])
            return [self._element(node, "augment_item", node.target, symbol, value)]
        name = node.target.id
        old = self._call(node, "load", ast.Constant(name), ast.Name(name, ast.Load()))
        call = self._call(
            node, "augment", ast.Constant(name), old, ast.Constant(SYMBOLS[type(node.op)]), value
        )
        return [self._set(name, call, node)]

    def _combined(self, node: ast.AugAssign, target: ast.Attribute, value: ast.expr) -> ast.expr:
        """What ``owner.name`` holds after ``owner.name += value``."""
        held = ast.copy_location(ast.Attribute(target.value, target.attr, ast.Load()), target)
        return self._call(node, "combined", self.visit(held), ast.Constant(SYMBOLS[type(node.op)]), value)

    def _assign(self, target: ast.expr, value: ast.expr, node: ast.AST) -> list[ast.stmt]:
        if isinstance(target, ast.Name):
            wish = self._call(node, "wish", ast.Constant(target.id))
            return [
                self._set(target.id, self._method(node, wish, "bind", ast.Constant(target.id), value), node)
            ]
        if isinstance(target, ast.Subscript):
            return [self._element(node, "store", target, value)]
        if isinstance(target, (ast.Tuple, ast.List)):
            return self._unpack(target, value, node)
        if isinstance(target, ast.Attribute) and self._sets_attributes:
            name = ast.Constant(target.attr)
            call = self._call(node, "set_attribute", self.visit(target.value), name, value)
            return [ast.copy_location(ast.Expr(call), node)]
        what = "a starred target" if isinstance(target, ast.Starred) else "assignment to an attribute"
        raise self._refuse(node, what, "use names and elements as targets")

    def _element(self, node: ast.AST, method: str, target: ast.Subscript, *args: ast.expr) -> ast.stmt:
        """A call that writes ``target``: its container, its index, then ``args``."""
        container, index = self.visit(target.value), self._index(target.slice)
        return ast.copy_location(ast.Expr(self._call(node, method, container, index, *args)), node)

    def _index(self, node: ast.expr) -> ast.expr:
        """An index as a value: slices become slice objects."""
        if isinstance(node, ast.Tuple):
            return ast.copy_location(ast.Tuple([self._index(item) for item in node.elts], ast.Load()), node)
        if not isinstance(node, ast.Slice):
            return self._expr(node)
        bounds = (node.lower, node.upper, node.step)
        given = [ast.Constant(None) if bound is None else self._expr(bound) for bound in bounds]
        return self._call(node, "slice", *given)

    def _unpack(self, target: ast.Tuple | ast.List, value: ast.expr, node: ast.AST) -> list[ast.stmt]:
        if any(isinstance(item, ast.Starred) for item in target.elts):
            raise self._refuse(node, "a starred target", "unpack into one name per value")
        items = self._temporary()
        wish = self._call(node, "wish", *self._names(target))
        names = [ast.Constant(_title(item)) for item in target.elts]
        is_shown = isinstance(value, (ast.Tuple, ast.List))
        call = self._method(node, wish, "unpack" if is_shown else "unpack_object", value, *names)
        stmts: list[ast.stmt] = [self._set(items, call, node)]
        for position, item in enumerate(target.elts):
            one = ast.Subscript(ast.Name(items, ast.Load()), ast.Constant(position), ast.Load())
            stmts += self._assign(item, one, node)
        return stmts

    # Control flow -----------------------------------------------------------------------------------------

    def visit_For(self, node: ast.For) -> list[ast.stmt]:
        """A loop, runtime or expanded."""
        self._no_else(node)
        subject, loop, item = self._subject(node.iter), self._temporary(), self._temporary()
        iterable = node.iter
        open_ = self._set(loop, self._call(iterable, "loop", subject, *self._names(node.target)), node)
        self._loops.append("for")
        body = self._assign(node.target, ast.Name(item, ast.Load()), node.target) + self._block(node.body)
        self._loops.pop()
        runs = ast.copy_location(ast.Name(loop, ast.Load()), iterable)
        over = ast.For(ast.Name(item, ast.Store()), runs, body, [])
        close = ast.Expr(self._method(node, ast.Name(loop, ast.Load()), "close"))
        return [open_, ast.copy_location(over, iterable), ast.copy_location(close, node)]

    def visit_While(self, node: ast.While) -> list[ast.stmt]:
        """A runtime loop."""
        self._no_else(node)
        names = sorted({name.id for name in ast.walk(node.test) if isinstance(name, ast.Name)} & self._locals)
        opened = self._call(node.test, "open_while")
        enter = self._call(node.test, "enter_while", opened, self.visit(node.test), *map(ast.Constant, names))
        self._loops.append("while")
        body = self._block(node.body)
        self._loops.pop()
        leave = ast.copy_location(ast.Expr(self._call(node, "leave_while")), node)
        return [ast.copy_location(ast.If(enter, [*body, leave], []), node)]

    def visit_If(self, node: ast.If) -> list[ast.stmt]:
        """A branch, runtime or decided while building."""
        shared = _of_both_sides(node)
        name, sides = self._temporary(), self._temporary()
        branch = ast.Name(name, ast.Load())
        stmts = [self._set(name, self._call(node.test, "branch", self.visit(node.test)), node)]
        if shared:
            stmts.append(self._set(sides, self._call(node.test, "sides", *map(ast.Constant, shared)), node))
        stmts.append(ast.If(self._method(node.test, branch, "then"), self._block(node.body), []))
        if node.orelse:
            turned = [self._rejoined(node.test, sides, "turns", each) for each in shared]
            left = [self._rejoined(node.test, sides, "leaves", each) for each in shared]
            other = [*turned, *self._block(node.orelse), *left]
            stmts.append(ast.If(self._method(node.test, branch, "orelse"), other, []))
        stmts.append(ast.Expr(self._method(node.test, branch, "close")))
        return [ast.copy_location(stmt, node) for stmt in stmts]

    def _rejoined(self, node: ast.expr, sides: str, how: str, name: str) -> ast.stmt:
        """``if sides.how(name): name = sides.held(name)``."""
        of, named = ast.Name(sides, ast.Load()), ast.Constant(name)
        held = self._set(name, self._method(node, of, "held", named), node)
        return ast.copy_location(ast.If(self._method(node, of, how, named), [held], []), node)

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        """A value that nothing takes: a call has its effect, anything else none."""
        value = self._expr(node.value)
        inert = (ast.Name, ast.Attribute, ast.Compare, ast.BinOp, ast.UnaryOp, ast.Subscript)
        made = self._call(node, "left", value) if isinstance(node.value, inert) else value
        if isinstance(made, ast.Call) and isinstance(made.func, ast.Name) and made.func.id == "print":
            made.args = [self._shown(made.func, each) for each in made.args]
        return ast.copy_location(ast.Expr(made), node)

    def _shown(self, function: ast.Name, value: ast.expr) -> ast.expr:
        """What a ``print`` is given; of a text with values in it, these."""
        if not isinstance(value, ast.JoinedStr):
            return self._call(value, "shown", function, value)
        for part in value.values:
            if isinstance(part, ast.FormattedValue):
                part.value = self._shown(function, part.value)
        return value

    def visit_Match(self, node: ast.Match) -> ast.stmt:
        """``match``: Python's, and so of Python values where patterns compare."""
        compares = any(
            isinstance(part, ast.MatchValue) for case in node.cases for part in ast.walk(case.pattern)
        )
        subject = self.visit(node.subject)
        node.subject = self._call(node.subject, "matched", subject) if compares else subject
        for case in node.cases:
            case.guard = case.guard and self.visit(case.guard)
            case.body = self._block(case.body)
        return node

    def visit_Break(self, node: ast.Break) -> list[ast.stmt]:
        """``break``."""
        return self._jump(node, "leave")

    def visit_Continue(self, node: ast.Continue) -> list[ast.stmt]:
        """``continue``."""
        return self._jump(node, "proceed")

    def visit_Return(self, node: ast.Return) -> ast.stmt:
        """``return``."""
        value = [self.visit(node.value)] if node.value is not None else []
        return ast.copy_location(ast.Return(self._call(node, "returned", *value)), node)

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        """An assertion: Python's on Python values, `T.device_assert` on expressions."""
        message = [] if node.msg is None else [self._lazy(copy.deepcopy(node.msg))]
        fails = self._call(node, "check", self.visit(node.test), *message)
        own = ast.copy_location(ast.Assert(ast.Constant(False), node.msg and self.visit(node.msg)), node)
        return ast.copy_location(ast.If(fails, [own], []), node)

    def visit_Delete(self, node: ast.Delete) -> list[ast.stmt]:
        """``del``: Python's, and the names hold nothing for the builder."""
        names = [ast.Constant(target.id) for target in node.targets if isinstance(target, ast.Name)]
        node.targets = [self.visit(target) for target in node.targets]
        forget = ast.copy_location(ast.Expr(self._call(node, "forget", *names)), node)
        return [node, forget]

    def visit_With(self, node: ast.With) -> ast.stmt:
        """A context manager; its targets are bound like assignments."""
        bindings: list[ast.stmt] = []
        for item in node.items:
            names = [] if item.optional_vars is None else self._names(item.optional_vars)
            manager = self.visit(item.context_expr)
            item.context_expr = self._call(item.context_expr, "context", manager, *names)
            if item.optional_vars is not None:
                held, target = self._temporary(), item.optional_vars
                bindings += self._assign(target, ast.Name(held, ast.Load()), target)
                item.optional_vars = ast.copy_location(ast.Name(held, ast.Store()), node)
        node.body = bindings + self._block(node.body)
        return node

    def _jump(self, node: ast.stmt, method: str) -> list[ast.stmt]:
        call = self._call(node, method)
        if not self._loops or self._loops[-1] == "while":
            return [ast.copy_location(ast.Expr(call), node)]
        return [ast.copy_location(ast.If(call, [node], []), node)]

    def _subject(self, node: ast.expr) -> ast.expr:
        """A loop's iterable; the function that makes it is asked for, since `range` means a runtime loop."""
        if not isinstance(node, ast.Call):
            return self._expr(node)
        callee = self._call(node, "callee", self.visit(node.func))
        made = ast.copy_location(ast.Call(ast.Constant(None), node.args, node.keywords), node)
        call: ast.Call = self.visit(made)
        call.func = callee
        return call

    # Pieces -----------------------------------------------------------------------------------------------

    def _block(self, stmts: list[ast.stmt]) -> list[ast.stmt]:
        result: list[ast.stmt] = []
        for stmt in stmts:
            over = ast.copy_location(ast.Expr(self._call(stmt, "settle")), stmt)
            made = self.visit(stmt)
            result.extend(made if isinstance(made, list) else [made])
            result.append(over)
        return result or [ast.Pass()]

    def _announce(self, name: str) -> ast.stmt:
        call = self._call(self._function, "given", ast.Constant(name), ast.Name(name, ast.Load()))
        return self._set(name, call, self._function)

    def _annotation(self, node: ast.expr) -> ast.expr:
        """A body annotation; a string is the expression it spells."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            spelled = ast.parse(node.value, mode="eval").body
            for part in ast.walk(spelled):
                ast.copy_location(part, node)
            return self._expr(spelled)
        return self._expr(node)

    def _names(self, target: ast.expr) -> list[ast.expr]:
        """The names of a target, as constants, in order."""
        items = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
        return [ast.Constant(item.id) for item in items if isinstance(item, ast.Name)]

    def _temporary(self) -> str:
        self._count += 1
        return f"{_TEMPORARY}{self._count}"

    def _set(self, name: str, value: ast.expr, node: ast.AST) -> ast.stmt:
        return ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], value), node)

    def _no_else(self, node: ast.For | ast.While) -> None:
        if node.orelse:
            raise self._refuse(node.orelse[0], "else of a loop", "test a T.alloc_var after the loop")


def _title(target: ast.expr) -> str:
    """What a value on its way to a target is called: the target's name, or that of its buffer, of a part of
    which brackets tell (`OF_SLICES`)."""
    mark = OF_SLICES if isinstance(target, ast.Subscript) and _has_slice(target.slice) else ""
    while isinstance(target, (ast.Subscript, ast.Attribute)):
        target = target.value
    return target.id + mark if isinstance(target, ast.Name) else "t"


def _has_slice(index: ast.expr) -> bool:
    return any(isinstance(part, ast.Slice) for part in ast.walk(index))


def _of_both_sides(node: ast.If) -> list[str]:
    """The names that one side of a branch assigns and the other one mentions."""
    stored = StoredNames()
    for stmt in node.body:
        stored.visit(stmt)
    others = {part.id for stmt in node.orelse for part in ast.walk(stmt) if isinstance(part, ast.Name)}
    return sorted(stored.names & others)


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0] if body else None
    if (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    ):
        return body[1:]
    return body
