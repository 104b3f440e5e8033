"""Small C functions that stand above the code: each is written where something calls it, once."""

from __future__ import annotations

from collections.abc import Callable

from tilec.backends.cpu.c_source.types import CType, c_type

#: Functions of libm by TIR's names; float32 has an f behind.
MATH = {
    name: name
    for name in (
        "exp exp2 log log2 log10 log1p sqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh "
        "erf floor ceil trunc round nearbyint fabs pow atan2 hypot fmod copysign nextafter"
    ).split()
}
_EXPRESSIONS = {
    "exp10": "pow(10, a)",  # exp10 is no function of the C standard
    "rsqrt": "1 / {sqrt}(a)",
    "sigmoid": "1 / (1 + {exp}(-a))",
    "round": "{rint}(a)",
    "nearbyint": "{rint}(a)",
}


class Helpers:
    """The types and functions that a file needs, in the order in which they were asked for."""

    def __init__(self) -> None:
        self._types: dict[str, str] = {}
        self._functions: dict[str, str] = {}

    def text(self) -> str:
        """All of them."""
        return "".join([*self._types.values(), *self._functions.values()])

    def type(self, kind: CType) -> str:
        """The name of a type, with its definition above."""
        if kind.is_vector and kind.name not in self._types:
            self._types[kind.name] = (
                f"typedef {kind.element} {kind.name} __attribute__((vector_size({kind.bytes})));\n"
            )
        return kind.name

    def function(self, name: str, text: Callable[[], str]) -> str:
        """The name of a function, with its text above."""
        if name not in self._functions:
            self._functions[name] = ""  # what it calls itself comes first
            made = text()
            del self._functions[name]
            self._functions[name] = f"static inline {made}\n"
        return name

    def declared(self, name: str, declaration: str) -> str:
        """The name of a function that something else defines, declared above."""
        self._functions.setdefault(name, f"{declaration};\n")
        return name

    # ---- memory ----

    def load(self, kind: CType) -> str:
        """``kind load(const element *p)`` at any address."""
        self.type(kind)
        return self.function(
            f"load_{kind.tag}",
            lambda: (
                f"{kind.name} load_{kind.tag}(const {kind.element} *p) "
                f"{{ {kind.name} v; __builtin_memcpy(&v, p, sizeof v); return v; }}"
            ),
        )

    def store(self, kind: CType) -> str:
        """``void store(element *p, kind v)`` at any address."""
        self.type(kind)
        return self.function(
            f"store_{kind.tag}",
            lambda: (
                f"void store_{kind.tag}({kind.element} *p, {kind.name} v) "
                "{ __builtin_memcpy(p, &v, sizeof v); }"
            ),
        )

    def gather(self, kind: CType, index: CType) -> str:
        """``kind gather(const element *p, index at)``."""
        name = f"gather_{kind.tag}_{index.tag}"
        self.type(kind), self.type(index)
        return self.function(
            name,
            lambda: self._lanes(
                f"{kind.name} {name}(const {kind.element} *p, {index.name} at)", kind, "p[at[i]]"
            ),
        )

    def scatter(self, kind: CType, index: CType) -> str:
        """``void scatter(element *p, index at, kind v)``."""
        name = f"scatter_{kind.tag}_{index.tag}"
        self.type(kind), self.type(index)
        return self.function(
            name,
            lambda: (
                f"void {name}({kind.element} *p, {index.name} at, {kind.name} v) "
                f"{{ for (int i = 0; i < {kind.lanes}; i++) p[at[i]] = v[i]; }}"
            ),
        )

    # ---- vectors ----

    def ramp(self, kind: CType) -> str:
        """``kind ramp(element base, element stride)``."""
        name = f"ramp_{kind.tag}"
        self.type(kind)
        head = f"{kind.name} {name}({kind.element} base, {kind.element} stride)"
        return self.function(name, lambda: self._lanes(head, kind, "base + i * stride"))

    def splat(self, kind: CType) -> str:
        """``kind splat(element x)``."""
        name = f"splat_{kind.tag}"
        self.type(kind)
        return self.function(name, lambda: self._lanes(f"{kind.name} {name}({kind.element} x)", kind, "x"))

    def select(self, condition: CType, kind: CType) -> str:
        """``kind select(condition c, kind a, kind b)``, all lanes of both sides at hand."""
        name = f"select_{kind.tag}"
        self.type(kind), self.type(condition)
        head = f"{kind.name} {name}({condition.name} c, {kind.name} a, {kind.name} b)"
        return self.function(name, lambda: self._lanes(head, kind, "c[i] ? a[i] : b[i]"))

    def convert(self, value: CType, kind: CType) -> str:
        """``kind convert(value a)`` lane by lane, as C converts."""
        name = f"{kind.tag}_of_{value.tag}"
        self.type(kind), self.type(value)
        lane = "a[i] != 0" if kind.dtype == "bool" else f"({kind.element})a[i]"
        return self.function(name, lambda: self._lanes(f"{kind.name} {name}({value.name} a)", kind, lane))

    def compare(self, word: str, operator: str, kind: CType) -> str:
        """``b8 compare(kind a, kind b)``."""
        result = c_type(f"boolx{kind.lanes}")
        name = f"{word}_{kind.tag}"
        self.type(kind), self.type(result)
        head = f"{result.name} {name}({kind.name} a, {kind.name} b)"
        return self.function(name, lambda: self._lanes(head, result, f"a[i] {operator} b[i]"))

    def reinterpret(self, value: CType, kind: CType) -> str:
        """``kind bits(value a)`` with the same bits."""
        name = f"bits_{kind.tag}_of_{value.tag}"
        self.type(kind), self.type(value)
        return self.function(
            name,
            lambda: (
                f"{kind.name} {name}({value.name} a) "
                f"{{ {kind.name} r; __builtin_memcpy(&r, &a, sizeof r); return r; }}"
            ),
        )

    def lanewise(self, name: str, kind: CType, count: int, expression: str) -> str:
        """``kind name_tag(kind a, ...)`` of ``count`` arguments, by an expression over a, b and c."""
        own = f"{name}_{kind.tag}"
        names = "abc"[:count]
        arguments = ", ".join(f"{self.type(kind)} {each}" for each in names)
        if not kind.is_vector:
            return self.function(own, lambda: f"{kind.name} {own}({arguments}) {{ return {expression}; }}")
        one = self.lanewise(name, kind.scalar, count, expression)
        lane = f"{one}({', '.join(f'{each}[i]' for each in names)})"
        return self.function(own, lambda: self._lanes(f"{kind.name} {own}({arguments})", kind, lane))

    @staticmethod
    def _lanes(head: str, kind: CType, lane: str) -> str:
        return f"{head} {{ {kind.name} r; for (int i = 0; i < {kind.lanes}; i++) r[i] = {lane}; return r; }}"


# ---- expressions of lanewise functions ----


def floor_division(kind: CType) -> str:
    """Towards minus infinity."""
    return "a / b - ((a % b != 0) & ((a % b < 0) != (b < 0)))" if kind.is_signed else "a / b"


def floor_remainder(kind: CType) -> str:
    """With the sign of the divisor."""
    return "a % b + ((a % b != 0) & ((a % b < 0) != (b < 0))) * b" if kind.is_signed else "a % b"


def math_expression(name: str, kind: CType) -> str | None:
    """A function of libm, in float32 for float16; None where libm has none of the name."""
    wide = kind.dtype != "float64"
    if name in _EXPRESSIONS:
        names = {each: each + "f" * wide for each in ("sqrt", "exp", "rint")}
        return _EXPRESSIONS[name].format(**names)
    if name not in MATH:
        return None
    count = 2 if name in ("pow", "atan2", "hypot", "fmod", "copysign", "nextafter") else 1
    return f"{MATH[name]}{'f' * wide}({', '.join('ab'[:count])})"
