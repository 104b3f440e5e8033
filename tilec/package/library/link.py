"""From generated texts and machine code to the shared library and the archive."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tilec.codegen.linkers import SharedLibrary
from tilec.codegen.toolchain import find_toolchain
from tilec.package.family import entry_objects, families_in
from tilec.package.library.runtime import compile_c, runtime_object
from tilec.package.library.sums import SUMS_SIZE, seal
from tilec.package.model import PackageSpec
from tilec.package.places import loaded_name
from tilec.package.templates import render


@dataclass(frozen=True)
class Sources:
    """What one library is linked from. ``exports`` are the public symbols."""

    runtime: str
    tables: str
    meta: bytes
    ir: bytes
    exports: tuple[str, ...]


def link(
    spec: PackageSpec,
    sources: Sources,
    folder: Path,
    *,
    static: bool,
) -> tuple[Path, Path | None]:
    """Compiles and links inside ``folder`` (a scratch folder); returns the shared library and the archive."""
    toolchain = find_toolchain(spec.host)
    images = _write_images(spec, folder)
    runtime, unit = _write_sources(spec, sources, folder)
    with ThreadPoolExecutor() as pool:
        kept = pool.submit(runtime_object, toolchain, runtime, folder / "shared")
        objects = (compile_c(toolchain, unit, folder / "shared"), kept.result())
    system = spec.host.system
    shared = folder / system.library.format(name=spec.name)
    wanted = SharedLibrary(shared, loaded_name(spec.name, spec.host), sources.exports)
    toolchain.link_shared([*objects, *images], wanted)
    seal(shared)
    if not static:
        return shared, None
    archive = folder / system.archive.format(name=spec.name)
    made = compile_c(toolchain, unit, folder / "static", ("-DTILEC_STATIC",))
    toolchain.archive([made, *images], archive)
    return shared, archive


def _write_images(spec: PackageSpec, folder: Path) -> list[Path]:
    """The objects of all variants with entries, named by their order so that paths do not decide bytes."""
    paths = []
    for number, code in enumerate(entry_objects(spec)):
        paths.append(folder / f"image_{number}.o")
        paths[-1].write_bytes(code)
    return paths


def _write_sources(spec: PackageSpec, sources: Sources, folder: Path) -> tuple[Path, Path]:
    """The files of the runtime and of all else, beside what these read."""
    runtime, unit = folder / f"{spec.name}_runtime.c", folder / f"{spec.name}_library.c"
    runtime.write_text(sources.runtime, encoding="utf-8")
    (folder / f"{spec.name}_tables.c").write_text(sources.tables, encoding="utf-8")
    held = "".join(family.sections(spec) for family in families_in(spec))
    text = render("library.c", name=spec.name, images=held, sums=SUMS_SIZE)
    unit.write_text(text, encoding="utf-8")
    for family in families_in(spec):
        for name, code in family.files(spec).items():
            (folder / name).write_bytes(code)
    (folder / "meta.bin").write_bytes(sources.meta)
    (folder / "ir.bin").write_bytes(sources.ir)
    return runtime, unit
