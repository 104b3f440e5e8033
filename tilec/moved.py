"""Modules of TileLang's own tree whose names live elsewhere here: ``from tilec.language.proxy import ptr``.

Such a module is an empty one that looks its names up where tilec has them. It is entered among the loaded
modules at once, as an import would put it in place of a function of the same name: ``tilec.jit``, ``T.copy``.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from tilec.unoffered import EXPLAIN, Unoffered

_LANGUAGE = ("language", "language.dtypes")
#: Modules, separated by spaces and without the prefix in front of all of them -> modules that hold their
#: names, asked in this order.
_MOVED: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "tilec.language.",
        "allocate annotations ast ast.ir atomic builtin cluster copy copy_op customize eager eager.ast "
        "eager.builder eager.dtypes eager.utils experimental experimental.gemm_sp fastmath fill fill_op "
        "frame gemm gemm_op kernel logical loop math_intrinsics overrides overrides.parser parser "
        "parser.entry parser.operation pdl persistent pipeline print print_op proxy random reduce reduce_op "
        "symbolics tir tir.entry tir.ir tir.op typing utils v2.annot v2.ast v2.builder v2.dtypes warpgroup",
        _LANGUAGE,
    ),
    ("tilec.language.", "fp8", ("language.values.fp8",)),
    ("tilec.", "jit jit.kernel jit.execution_backend", ("inprocess.jitted", "inprocess.kernel", "")),
    ("tilec.", "loader", ("portable.loader",)),
    ("tilec.", "torch_ops", ("portable.torch_ops",)),
    ("tilec.", "jit.param engine.param", ("inprocess.params",)),
    ("tilec.", "jit.env", ("env",)),
    ("tilec.jit.", "adapter adapter.utils adapter.wrapper exceptions", ()),
    ("tilec.autotuner.", "capture tuner", ("autotuner", "autotuner.param")),
    ("tilec.", "profiler.bench", ("profiler",)),
    ("tilec.layout.", "fragment layout swizzle", ("layout",)),
    ("tilec.", "primitives primitives.gemm primitives.gemm.base tileop.gemm", ("tileop.base",)),
    ("tilec.", "transform.pass_config", ("transform",)),
    ("tilec.", "libinfo version", ("",)),
    ("tilec.cuda.intrinsics.", "layout macro macro.mma_macro_generator mma_macro_generator", ("intrinsics",)),
    ("tilec.cuda.intrinsics.", "layout.mma_layout mma_layout", ("intrinsics.mma_layout",)),
    ("tilec.cuda.intrinsics.", "layout.utils utils", ("intrinsics.utils",)),
    ("tilec.cuda.", "intrinsics", ("intrinsics",)),
    ("tilec.utils.", "allocate_tensor deprecated device", ("utils", "utils.tensor")),
    ("tilec.", "analysis autodd common common.transform_kind", ()),
)


class _Moved(ModuleType):
    """A module without names of its own. ``homes``: where they live; others raise when they are used."""

    def __init__(self, name: str, homes: tuple[str, ...]) -> None:
        super().__init__(name, f"Names of {name} live in {', '.join(map(_full, homes)) or 'no module'}.")
        self.__path__: list[str] = []
        self._homes = homes

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":
            return sorted({public for home in self._modules() for public in _public(home)})
        if name.startswith("__") and name.endswith("__") and name != "__version__":
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        for home in self._modules():
            try:
                return getattr(home, name)
            except AttributeError:
                continue
        return Unoffered(f"{self.__name__}.{name}", EXPLAIN)

    def _modules(self) -> list[ModuleType]:
        return [import_module(_full(home)) for home in self._homes]


def _full(home: str) -> str:
    return f"tilec.{home}" if home else "tilec"


def _public(module: ModuleType) -> list[str]:
    """What ``from module import *`` takes."""
    found: list[str] = list(getattr(module, "__all__", ()))
    return found


def install() -> None:
    """Enters the modules; those that are there already stay."""
    for prefix, names, homes in _MOVED:
        for name in names.split():
            sys.modules.setdefault(prefix + name, _Moved(prefix + name, homes))
