"""From generated texts and machine code to the shared library and the archive."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tilec.codegen.toolchain import Toolchain, find_toolchain
from tilec.errors import EnvironmentError_
from tilec.package.family import entry_objects, families_in
from tilec.package.model import PackageSpec
from tilec.package.sums import SUMS_SIZE, seal
from tilec.package.templates import render

#: The runtime's loops run a few rounds: unrolled or vectorised they only fill caches that callers need.
_SHORT_LOOPS = ("-fno-tree-vectorize", "-fno-tree-slp-vectorize", "-fno-unroll-loops")


@dataclass(frozen=True)
class Sources:
    """What one library is linked from. ``exports`` are the public symbols."""

    tables: str
    meta: bytes
    ir: bytes
    exports: tuple[str, ...]


def runtime_folder() -> Path:
    """The folder of the C runtime: in a wheel inside the package, in a checkout beside it."""
    package = Path(__file__).parents[1]
    for folder in (package / "runtime_c", package.parent / "runtime_c"):
        if (folder / "src" / "runtime.c").exists():
            return folder
    raise EnvironmentError_("the C runtime of tilec is missing", remedy="reinstall tilec")


def runtime_bytes() -> bytes:
    """All files of the runtime, for the build id."""
    folder = runtime_folder()
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


def soname(name: str, abi: int) -> str:
    """The SONAME of library ``name``."""
    return f"lib{name}.so.{abi}"


def link(
    spec: PackageSpec,
    sources: Sources,
    folder: Path,
    *,
    abi: int,
    static: bool,
) -> tuple[Path, Path | None]:
    """Compiles and links inside ``folder`` (a scratch folder); returns the shared library and the archive."""
    toolchain = find_toolchain(spec.host)
    images = _write_images(spec, folder)
    texts = _write_sources(spec, sources, folder)
    objects = _compile(toolchain, texts, folder / "shared")
    shared = folder / f"lib{spec.name}.so"
    toolchain.link_shared(
        [*objects, *images], shared, soname=soname(spec.name, abi), version_script=folder / "exports.map"
    )
    seal(shared)
    if not static:
        return shared, None
    archive = folder / f"lib{spec.name}.a"
    objects = _compile(toolchain, texts, folder / "static", ("-DTILEC_STATIC",))
    toolchain.archive([*objects, *images], archive)
    return shared, archive


def _write_images(spec: PackageSpec, folder: Path) -> list[Path]:
    """The objects of all variants with entries, named by their order so that paths do not decide bytes."""
    paths = []
    for number, code in enumerate(entry_objects(spec)):
        paths.append(folder / f"image_{number}.o")
        paths[-1].write_bytes(code)
    return paths


def _write_sources(spec: PackageSpec, sources: Sources, folder: Path) -> tuple[Path, Path]:
    tables, sections = folder / f"{spec.name}_tables.c", folder / f"{spec.name}_sections.S"
    tables.write_text(sources.tables, encoding="utf-8")
    held = "".join(family.sections(spec) for family in families_in(spec))
    text = render("sections.S", name=spec.name, images=held, sums=SUMS_SIZE)
    sections.write_text(text, encoding="utf-8")
    for family in families_in(spec):
        for name, code in family.files(spec).items():
            (folder / name).write_bytes(code)
    (folder / "meta.bin").write_bytes(sources.meta)
    (folder / "ir.bin").write_bytes(sources.ir)
    names = "".join(f"    {name};\n" for name in sources.exports)
    (folder / "exports.map").write_text(f"{{\n  global:\n{names}  local: *;\n}};\n", encoding="utf-8")
    return tables, sections


def _compile(
    toolchain: Toolchain, texts: tuple[Path, Path], folder: Path, flags: tuple[str, ...] = ()
) -> tuple[Path, ...]:
    runtime = runtime_folder()
    include = (runtime / "include", runtime / "src", dlpack_folder(), texts[0].parent)
    prefix = f"-ffile-prefix-map={runtime}=runtime_c"
    return toolchain.compile(texts, folder, include=include, flags=(prefix, *_SHORT_LOOPS, *flags))
