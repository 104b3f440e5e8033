"""Immutable names by TVM's spellings: ``x: T.let = e``, ``x: T.let[T.int32] = e``, ``x = T.bind(e)`` and
``with T.LetStmt(e) as x``. A plain ``x = e`` means the same."""

from __future__ import annotations

from typing import Any

from tilec.language.values.conversions import typed_value
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.places import unsupported
from tilec.language.values.operands import wrap
from tilec.language.values.scalars import dtype as make_dtype
from tilec.language.values.value import Value, resolve


class Let:
    """``T.let`` and ``T.let[dtype]``: as an annotation it binds, and casts to the dtype if there is one."""

    def __init__(self, kind: make_dtype | None = None) -> None:
        self.kind = kind

    def __getitem__(self, kind: Any) -> Let:
        return Let(make_dtype(kind))

    def __call__(self, value: Any, *rest: Any) -> Any:
        """The value, evaluated here; TVM's older call with a variable is refused."""
        if rest:
            raise unsupported("T.let(var, value)", remedy="write x = value, or x: T.let = value")
        return bind(value, self.kind)

    def of(self, value: Any) -> Any:
        """The right side of an assignment under the annotation."""
        return value if self.kind is None else typed_value(value, self.kind)


let = Let()


def bind(value: Any, type_annotation: Any = None, *, var: Any = None) -> Value:
    """``value`` evaluated here, once; cast to a dtype if one is given."""
    if var is not None:
        raise unsupported("T.bind(var=...)", remedy="write x = T.bind(value)")
    made = (
        wrap(resolve(value)) if type_annotation is None else typed_value(value, make_dtype(type_annotation))
    )
    builder = sessions.builder("T.bind")
    return builder.bind(builder.wish("t"), made)


class LetStmt:
    """``with T.LetStmt(value) as x``."""

    def __init__(self, value: Any, type_annotation: Any = None, *, var: Any = None) -> None:
        self._given = value, type_annotation, var

    def __enter__(self) -> Value:
        value, kind, var = self._given
        return bind(value, kind, var=var)

    def __exit__(self, *_: Any) -> None:
        """The name lives on until its region ends."""
