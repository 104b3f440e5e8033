"""Values of wide random programs (`wide_programs`): whole numbers whose bounds are known, so that every road
gives the same bits in every type and in every order."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

FLOATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
UNSIGNED = ("uint8", "uint16", "uint32")
#: Up to where a type has all whole numbers; integers wrap behind theirs.
EXACT = {
    "float64": 2**24, "float32": 2**24, "float16": 2**11, "bfloat16": 2**8, "float8_e4m3fn": 16,
    "float8_e5m2": 8, "int64": 2**40, "int32": 2**31, "uint32": 2**32, "int16": 2**15, "uint16": 2**16,
    "int8": 2**7, "uint8": 2**8,
}  # fmt: skip
#: Bits of an element.
BITS = {
    "float64": 64, "float32": 32, "float16": 16, "bfloat16": 16, "float8_e4m3fn": 8, "float8_e5m2": 8,
    "int64": 64, "int32": 32, "uint32": 32, "int16": 16, "uint16": 16, "int8": 8, "uint8": 8,
}  # fmt: skip
#: What a tile holds at rest is between -REST and REST.
REST = 4


@dataclass(frozen=True)
class Value:
    """An expression of a kernel: a whole number of at most ``most``."""

    text: str
    dtype: str
    most: int
    signed: bool = True

    @property
    def floats(self) -> bool:
        return self.dtype in FLOATS

    def cast(self, dtype: str) -> Value:
        if dtype == self.dtype:
            return self
        return Value(f'T.cast({self.text}, "{dtype}")', dtype, self.most, self.signed)

    def wide(self) -> Value:
        """In 32 bits, in which sums of few have room."""
        return self.cast("float32" if self.floats else "int32")

    def whole(self) -> Value:
        """As an int32."""
        return self.cast("int32")


def resting(value: Value, dtype: str) -> Value:
    """A value that a tile of ``dtype`` may hold: itself where it is small, else what a division leaves."""
    if dtype in UNSIGNED:
        return Value(f"{bracketed(value.whole().text)} % {REST + 1}", "int32", REST, False)
    if value.most <= REST:
        return value
    return Value(f"({bracketed(value.whole().text)} % {2 * REST + 1} - {REST})", "int32", REST)


def bracketed(text: str) -> str:
    return text if text.replace("_", "").isalnum() else f"({text})"


class Drawing:
    """Random expressions of leaves that ``leaf`` draws; ``test`` draws conditions."""

    def __init__(self, draw: random.Random, leaf: Callable[[], Value], test: Callable[[], str]) -> None:
        self.draw, self.leaf, self.test = draw, leaf, test

    def value(self, depth: int) -> Value:
        """An expression of so many steps at most."""
        if depth == 0 or self.draw.random() < 0.2:
            return self.leaf()
        return self.draw.choice(
            [self._sum, self._sum, self._product, self._chosen, self._extreme, self._single]
        )(depth)

    def _pair(self, depth: int) -> tuple[Value, Value]:
        """Two of one type in which they have room."""
        one, other = self.value(depth - 1), self.value(depth - 1)
        if (
            one.dtype == other.dtype
            and self._room(one.dtype, one.most + other.most)
            and self.draw.random() < 0.5
        ):
            return one, other
        floats = one.floats or other.floats
        dtype = "float32" if floats else "int32"
        if self.draw.random() < 0.1 and not floats:
            dtype = "int64"
        return one.cast(dtype), other.cast(dtype)

    @staticmethod
    def _room(dtype: str, most: int) -> bool:
        return most <= EXACT[dtype]

    def _sum(self, depth: int) -> Value:
        one, other = self._pair(depth)
        minus = self.draw.random() < 0.4 and one.dtype not in UNSIGNED
        return self._within(
            Value(f"({one.text} {'-' if minus else '+'} {other.text})", one.dtype, one.most + other.most)
        )

    def _product(self, depth: int) -> Value:
        one, other = self._pair(depth)
        if not self._room(one.dtype, one.most * other.most):
            one, other = one.wide(), other.wide()
        return self._within(Value(f"({one.text} * {other.text})", one.dtype, one.most * other.most))

    def _within(self, value: Value) -> Value:
        """Small enough for what comes next."""
        if value.most <= 2**10:
            return value
        low = resting(value, "int32")
        return low.cast("float32") if value.floats else low

    def _chosen(self, depth: int) -> Value:
        one, other = self._pair(depth)
        form = self.draw.choice(
            ["T.if_then_else({c}, {a}, {b})", "({a} if {c} else {b})", "T.Select({c}, {a}, {b})"]
        )
        return Value(
            form.format(c=self.test(), a=one.text, b=other.text), one.dtype, max(one.most, other.most)
        )

    def _extreme(self, depth: int) -> Value:
        one, other = self._pair(depth)
        return Value(
            f"T.{self.draw.choice(['max', 'min'])}({one.text}, {other.text})",
            one.dtype,
            max(one.most, other.most),
        )

    def _single(self, depth: int) -> Value:
        one = self.value(depth - 1)
        wide = one.wide()
        if one.floats:
            forms = [
                "T.floor({x} / 2.0)",
                "T.trunc({x} * 0.5)",
                "T.abs({x})",
                "-{x}",
                "T.clamp({x}, -3.0, 3.0)",
                "T.ceil({x} * 0.25)",
            ]
        else:
            forms = [
                "{x} // 2",
                "{x} % 5",
                "({x} & 3)",
                "({x} >> 1)",
                "T.abs({x})",
                "({x} ^ 1)",
                "-{x}",
                "({x} | 2)",
                "T.truncmod({x}, 3)",
            ]
        made = self.draw.choice(forms).format(x=bracketed(wide.text))
        return Value(f"({made})", wide.dtype, max(wide.most + 3, 4))
