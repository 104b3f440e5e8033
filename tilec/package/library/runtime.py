"""The C runtime: its files, and its object, which libraries of one kind share and the cache keeps."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path

from tilec.cache import Store, digest
from tilec.capacity import CAPACITY
from tilec.codegen.image import RUNTIME_CALLS
from tilec.codegen.toolchain import Toolchain
from tilec.errors import EnvironmentError_
from tilec.ir.guards import largest_dim
from tilec.package.family import entry_objects, families_in
from tilec.package.model import PackageSpec
from tilec.package.tables.detection import detection_source
from tilec.package.templates import render
from tilec.package.text.c import constants
from tilec.settings import read_settings

_KIND = "runtime"
#: The objects that this process has met, by their keys: a few of less than 100 kB.
_met: dict[str, bytes] = {}
#: The runtime's loops run a few rounds: unrolled or vectorised they only fill caches that callers need.
_SHORT_LOOPS = ("-fno-tree-vectorize", "-fno-tree-slp-vectorize", "-fno-unroll-loops")


def runtime_folder() -> Path:
    """The folder of the C runtime: in a wheel inside the package, in a checkout beside it."""
    package = Path(__file__).parents[2]
    for folder in (package / "runtime_c", package.parent / "runtime_c"):
        if (folder / "src" / "runtime.c").exists():
            return folder
    raise EnvironmentError_("the C runtime of tilec is missing", remedy="reinstall tilec")


def runtime_bytes() -> bytes:
    """All files of the runtime, for the build id; they are read once."""
    return _read(runtime_folder())


@lru_cache(maxsize=1)
def _read(folder: Path) -> bytes:
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".c", ".h", ".hpp"))
    return b"\0".join(path.read_bytes() for path in files)


def dlpack_folder() -> Path:
    """The include folder that holds dlpack/dlpack.h, of the installed apache-tvm-ffi package."""
    import importlib.util

    spec = importlib.util.find_spec("tvm_ffi")
    roots = spec.submodule_search_locations if spec is not None else None
    for root in map(Path, roots or ()):
        for folder in (root / "include", root / "3rdparty" / "dlpack" / "include"):
            if (folder / "dlpack" / "dlpack.h").exists():
                return folder
    raise EnvironmentError_("dlpack.h is missing", remedy="pip install apache-tvm-ffi, which carries it")


def runtime_source(spec: PackageSpec) -> str:
    """The C file that is the runtime of a library: a matter of its processors and families of devices, and of
    whether its kernels print or check."""
    families = families_in(spec)
    detection, num_features = detection_source(spec.host)
    return render(
        "runtime.c",
        constants=constants(_numbers(spec, num_features)),
        device_families="".join(f" X({family.name})" for family in families if family.runtime),
        detection=detection,
        runtimes="".join(family.runtime for family in families),
    )


def _numbers(spec: PackageSpec, num_features: int) -> dict[str, int]:
    """What the runtime has room for, and what it may leave out for this library."""
    return {
        **{name.upper(): value for name, value in asdict(CAPACITY).items()},
        "MOST_BLOCKS": largest_dim(32),
        "NUM_CPU_FEATURES": num_features,
        "CALLS_RUNTIME": int(_calls_runtime(spec)),
    }


def _calls_runtime(spec: PackageSpec) -> bool:
    """Whether an entry prints or checks: then its threads have to be marked while it runs."""
    return any(name.encode() in code for code in entry_objects(spec) for name in RUNTIME_CALLS)


def compile_c(toolchain: Toolchain, text: Path, folder: Path, flags: tuple[str, ...] = ()) -> Path:
    """The object, in ``folder``, of a file that includes the runtime's. Raises CompileError."""
    runtime = runtime_folder()
    include = (runtime / "include", runtime / "src", dlpack_folder(), text.parent)
    prefix = f"-ffile-prefix-map={runtime}=runtime_c"
    return toolchain.compile(text, folder, include=include, flags=(prefix, *_SHORT_LOOPS, *flags))


def runtime_object(toolchain: Toolchain, text: Path, folder: Path) -> Path:
    """The object, in ``folder``, of a `runtime_source` for shared libraries: one that this process has met,
    else the cache's, else compiled and, where the cache can be written, kept there. Raises CompileError."""
    settings, key = read_settings(), _key(toolchain, text)
    store = Store(settings.cache_dir) if settings.cache else None
    code = _met.get(key) or (store.get(_KIND, key) if store else None)
    if code is None:
        code = compile_c(toolchain, text, folder).read_bytes()
        if store:
            with contextlib.suppress(OSError):
                store.put(_KIND, key, code)
    _met[key] = code
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{text.stem}.o"
    path.write_bytes(code)
    return path


def _key(toolchain: Toolchain, text: Path) -> str:
    """What the object is made of: the text, all that it includes but the system's headers, the compiler."""
    header = dlpack_folder() / "dlpack" / "dlpack.h"
    included = (text.read_bytes(), runtime_bytes(), header.read_bytes())
    return digest(*included, *_SHORT_LOOPS, *toolchain.stamp())
