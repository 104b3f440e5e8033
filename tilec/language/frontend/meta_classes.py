"""T.meta_class: classes whose objects live while a kernel is built and hold its variables."""

from __future__ import annotations

import ast
from types import FunctionType
from typing import Any, TypeVar

from tilec.errors import SourceTypeError
from tilec.language.frontend.programs import Macro, macro
from tilec.language.frontend.rewriting.capture import Captured, scope_of_caller
from tilec.language.values.kernel.places import source_error

Class = TypeVar("Class", bound=type)


def meta_class(cls: Class) -> Class:
    """Decorator of a class: its methods that store to elements (``self.count[0] = ...``), or behind
    ``__init__`` to attributes (``self.count = self.count + 1``, where a variable is stored to), are macros
    with ``self`` bound, the others stay plain Python. Raises `SourceTypeError` for anything else."""
    if not isinstance(cls, type):
        raise source_error(
            SourceTypeError,
            f"@T.meta_class decorates a class, not {type(cls).__name__}",
            remedy="use @T.macro for functions",
        )
    scope = scope_of_caller(1)
    for name, method in list(vars(cls).items()):
        if isinstance(method, FunctionType) and _stores(name, Captured(method, scope)):
            setattr(cls, name, Macro(method, sets_attributes=True))
    return cls


def inline(target: Any) -> Any:
    """`meta_class` for a class, `T.macro` for a function."""
    return meta_class(target) if isinstance(target, type) else macro(target)


def _stores(name: str, method: Captured) -> bool:
    kinds = ast.Subscript if name == "__init__" else (ast.Subscript, ast.Attribute)
    return any(isinstance(node, kinds) and isinstance(node.ctx, ast.Store) for node in ast.walk(method.tree))
