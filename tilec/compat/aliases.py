"""The map of other packages' names: which module of tilec holds them, and what to do instead of those that it
does not offer.

Such a module is an empty one that looks its names up where they live. A name that is not offered resolves, so
that a file with an unused branch still loads; using it is an error that says what to do."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

#: What stands for this map in the ``__path__`` of a package.
ENTRY = "names of tilec/compat/aliases.py"

EXPLAIN = "use tilec explain"
_EMITTERS = "use T.gemm and T.copy, which choose the instructions of each target"
_VENDORS = "compile for cuda or cpu"
_SCHEDULES = "list configs in [kernel.tune], or in configs of tilec.autotune"

#: Package -> what to do instead of what it does not have: every module below it imports.
PACKAGES = {
    "carver": _SCHEDULES,
    "contrib": "use kernel.export_ptx() and kernel.export_library()",
    "cuda": _EMITTERS,
    "cutedsl": _VENDORS,
    "engine": EXPLAIN,
    "intrinsics": _EMITTERS,
    "metal": _VENDORS,
    "quantize": "unpack with >> and & in the kernel",
    "rocm": _VENDORS,
    "tools": EXPLAIN,
    "tvm": EXPLAIN,
    "webgpu": _VENDORS,
}
#: The same for single modules.
_REMEDIES = {
    "tilec.env": "set environment variables: docs/in-process.md names them",
    "tilec.tvm.testing": "use NumPy's or torch's testing",
    "tilec.utils.language": "use the methods of buffers, or T.copy on regions",
}
#: Names of the package `tilec` itself -> what to do instead.
_FUNCTIONS = {
    "lower": EXPLAIN,
    "register_cuda_postproc": "change the kernel: its CUDA code is not edited",
    "register_cuda_postproc_callback": "change the kernel: its CUDA code is not edited",
}
#: Modules of this folder that are attributes after ``import tilec`` alone, beside `PACKAGES`.
_MODULES = frozenset("autotuner env layout math profiler testing tileop transform utils".split())

_LANGUAGE = ("language", "language.dtypes")
#: Modules, separated by spaces and without the prefix in front of all of them -> modules that hold their
#: names, asked in this order; "" is `tilec` itself.
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
    ("tilec.language.", "fp8", ("language.values.functions.fp8",)),
    ("tilec.", "jit jit.kernel jit.execution_backend", ("inprocess.jitted", "inprocess.kernel", "")),
    ("tilec.", "loader", ("portable.loader",)),
    ("tilec.", "torch_ops", ("portable.torch_ops",)),
    ("tilec.", "jax_ops", ("portable.jax_ops",)),
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
_HOMES = {
    prefix + name: tuple(f"tilec.{home}".rstrip(".") for home in homes)
    for prefix, names, homes in _MOVED
    for name in names.split()
}
#: Names of TVM's expressions, which are the language's wherever TVM has them.
_VALUES = ("Expr", "PrimExpr", "IntImm", "FloatImm")
#: What modules of emitters hand on of `tilec.layout`.
_SWIZZLES = ("SwizzleMode", "get_swizzle_layout", "make_mma_swizzle_layout")


class _Alias(ModuleType):
    """A module without names of its own."""

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":
            return sorted({public for home in _homes(self.__name__, name) for public in _public(home)})
        if name.startswith("__") and name.endswith("__") and name != "__version__":
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return look_up(self.__name__, name)


class _Finder:
    """The finder of `ENTRY`: finds the modules of the map."""

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        """An alias, or nothing."""
        if fullname not in _HOMES and _package(fullname) not in PACKAGES:
            return None
        spec = ModuleSpec(fullname, self, is_package=True)  # type: ignore[arg-type]
        spec.submodule_search_locations = [ENTRY]
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The alias."""
        return _Alias(spec.name, f"Names of {spec.name} live in other modules of tilec, or are not offered.")

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: names are looked up when they are needed."""


def _find_entry(entry: str) -> _Finder:
    if entry != ENTRY:
        raise ImportError(f"{entry} is not {ENTRY}")
    return _Finder()


sys.path_hooks.append(_find_entry)


def look_up(module: str, name: str) -> Any:
    """What ``module`` has under ``name``, wherever it lives; a `RefusedImport` of what is not offered."""
    for home in _homes(module, name):
        try:
            return getattr(import_module(home), name)
        except AttributeError:
            continue
        except ModuleNotFoundError:
            if not home.startswith("tvm"):
                raise
    return _refusal(f"{module}.{name}", _REMEDIES.get(module) or PACKAGES.get(_package(module), EXPLAIN))


def attribute(name: str) -> Any:
    """What ``tilec.name`` is; AttributeError for what does not exist."""
    if name in _FUNCTIONS:
        return _refusal(f"tilec.{name}", _FUNCTIONS[name])
    if name in _MODULES or name in PACKAGES or f"tilec.{name}" in _HOMES:
        return import_module(f"tilec.{name}")
    raise AttributeError(f"module tilec has no attribute {name}")


def _refusal(name: str, remedy: str) -> Any:
    from tilec.language.values.refusal import RefusedImport  # the language is loaded by what is refused alone

    return RefusedImport(name, remedy)


def _homes(module: str, name: str) -> tuple[str, ...]:
    """The modules that may hold a name of ``module``."""
    if module in _HOMES:
        return _HOMES[module]
    if _package(module) == "tvm":
        return ("tilec.tvm.tirx",) if name in _VALUES else (_home_in_tvm(module.removeprefix("tilec.tvm.")),)
    return ("tilec.layout",) if name in _SWIZZLES else ()


def _home_in_tvm(rest: str) -> str:
    """Where the names of a module below tilec.tvm live: those of contrib here, those of tir in TVM's tirx."""
    if rest.partition(".")[0] == "contrib":
        return f"tilec.{rest}"
    return f"tvm.tirx{rest[3:]}" if rest.startswith("tir.") else f"tvm.{rest}"


def _package(module: str) -> str:
    """("tilec.carver.arch") -> "carver"."""
    return module.partition(".")[2].partition(".")[0]


def _public(home: str) -> Iterator[str]:
    """What ``from home import *`` takes."""
    module = import_module(home)
    if home.startswith("tvm"):
        return (name for name in dir(module) if not name.startswith("_"))
    return iter(getattr(module, "__all__", ()))
