"""``tilec.language.dtypes``: every dtype by its name, ``dtype`` itself, and tables of the names that Python,
NumPy and torch have for them, as kernel files of TileLang look them up (``_TORCH_DTYPE_TO_STR``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilec.dtypes import DTYPES
from tilec.language.values.refusal import Refusal
from tilec.language.values.scalars import NAMES, PYTHON_TYPES, dtype

__all__ = ["dtype", *NAMES]

get_tvm_dtype = dtype
#: What annotations call anything that stands for a dtype.
AnyDType = VoidDType = Any


def _of_torch() -> dict[Any, str]:
    import torch

    rows = (row for row in DTYPES.values() if row.torch is not None and row.name != "tfloat32")
    return {getattr(torch, str(row.torch)): row.name for row in rows if hasattr(torch, str(row.torch))}


def _of_numpy() -> dict[Any, str]:
    import numpy as np

    names = [row.numpy for row in DTYPES.values() if row.numpy and "." not in row.numpy]
    types = {getattr(np, name): str(np.dtype(name)) for name in names}
    return {**types, **{np.dtype(kind): name for kind, name in types.items()}}


def _back(table: dict[Any, str]) -> dict[str, Any]:
    return {name: found for found, name in reversed(table.items())}


#: Name of a table -> what makes it; those of packages load them.
_TABLES: dict[str, Callable[[], Any]] = {
    "_PYTHON_DTYPE_TO_STR": lambda: dict(PYTHON_TYPES),
    "_NUMPY_DTYPE_TO_STR": _of_numpy,
    "_TORCH_DTYPE_TO_STR": _of_torch,
    "_DTYPE_TO_STR": lambda: {**PYTHON_TYPES, **_of_numpy(), **_of_torch()},
    "_STR_TO_NUMPY_DTYPE": lambda: _back(_of_numpy()),
    "_STR_TO_NP_DTYPE": lambda: _back(_of_numpy()),
    "_STR_TO_TORCH_DTYPE": lambda: _back(_of_torch()),
    "_all_dtypes": lambda: set(NAMES),
}


def __getattr__(name: str) -> Any:
    if name in NAMES:
        return NAMES[name]
    if name in _TABLES:
        return globals().setdefault(name, _TABLES[name]())
    if name.startswith("_") and not name.startswith("__"):
        return Refusal(f"tilec.language.dtypes.{name}", "use T.dtype(x), which takes every kind of dtype")
    raise AttributeError(f"there is no dtype {name!r}")
