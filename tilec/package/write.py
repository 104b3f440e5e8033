"""Writes a package: headers first, the library last, each file renamed into place."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from tilec.package.checks import check_spec, exported_symbols
from tilec.package.cpp_header import cpp_header_source
from tilec.package.escape import cmake_string, json_text, pkg_config
from tilec.package.header import header_source
from tilec.package.install import install, scratch_folder
from tilec.package.link import Sources, link, soname
from tilec.package.metadata import ABI_VERSION, describe, ir_section, meta_section, to_json
from tilec.package.model import PackageSpec
from tilec.package.order import dispatch_order, target_order
from tilec.package.python import python_files
from tilec.package.runtime import dlpack_folder, runtime_bytes, runtime_folder, runtime_source
from tilec.package.rust import crate_files
from tilec.package.starts import with_starts
from tilec.package.tables import tables_source
from tilec.package.templates import render, template_bytes

_RUNTIME_HEADERS = ("tilec/tilec.h", "tilec/tilec.hpp")


@dataclass(frozen=True)
class BuildReport:
    """What was written. ``library`` is the shared library, ``archive`` the static one if asked for; ``size``
    and ``sha256`` are the shared library's; ``metadata`` is what metadata.json holds; ``files`` are the paths
    of all files below ``out_dir``."""

    name: str
    out_dir: Path
    library: Path
    archive: Path | None
    build_id: str
    size: int
    sha256: str
    kernels: int
    variants: int
    metadata: dict[str, object]
    files: tuple[str, ...]


def write_package(spec: PackageSpec, out_dir: Path, *, static: bool = False) -> BuildReport:
    """Builds the library of ``spec`` and installs it under ``out_dir``.

    Raises PackageError when the spec is inconsistent, linking fails or ``out_dir`` cannot be written; what
    was installed before then stays whole."""
    spec, targets, metadata = _described(spec)
    with scratch_folder(out_dir) as folder:
        files = _make_files(spec, targets, metadata, folder, static)
        report = _report(spec, out_dir, metadata, folder, files)
        install(files, out_dir)
    return report


def write_library(spec: PackageSpec, path: Path) -> str:
    """Links the shared library of ``spec`` alone, renames it to ``path``, and returns the C text of its
    tables: the host code that dispatches and launches. A process may open any number of such libraries.
    Raises as `write_package`."""
    spec, targets, metadata = _described(spec)
    sources = _sources(spec, targets, metadata)
    with scratch_folder(path.parent) as folder:
        shared, _ = link(spec, sources, folder, abi=ABI_VERSION, static=False)
        os.replace(shared, path)
    return sources.tables


def host_sources(spec: PackageSpec) -> dict[str, str]:
    """The C files of a library by name: its tables, which are the host code that dispatches and launches, and
    the runtime that they call. Raises PackageError when the spec is inconsistent."""
    sources = _sources(*_described(spec))
    return {f"{spec.name}_tables.c": sources.tables, f"{spec.name}_runtime.c": sources.runtime}


def _described(spec: PackageSpec) -> tuple[PackageSpec, tuple[str, ...], dict[str, object]]:
    """The checked spec in order, its targets best first, and its metadata."""
    spec = _sorted(spec)
    check_spec(spec)
    targets = target_order([variant for kernel in spec.kernels for variant in kernel.variants])
    metadata = describe(spec, targets)
    return spec, targets, {"build_id": _build_id(spec, metadata), **metadata}


def _sorted(spec: PackageSpec) -> PackageSpec:
    kernels = [
        with_starts(replace(kernel, variants=dispatch_order(kernel.variants))) for kernel in spec.kernels
    ]
    return replace(spec, kernels=tuple(sorted(kernels, key=lambda kernel: kernel.name.encode("utf-8"))))


# ---- content ----


def _build_id(spec: PackageSpec, metadata: dict[str, object]) -> str:
    """32 hex digits over everything that decides the library: metadata (with the images' digests and the
    tools' versions), tile IR, runtime and templates."""
    parts = (to_json(metadata), ir_section(spec), runtime_bytes(), template_bytes())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]


def _sources(spec: PackageSpec, targets: tuple[str, ...], metadata: dict[str, object]) -> Sources:
    text = to_json(metadata)
    return Sources(
        runtime=runtime_source(spec),
        tables=tables_source(spec, targets, str(metadata["build_id"]), len(text)),
        meta=meta_section(text),
        ir=ir_section(spec),
        exports=exported_symbols(spec),
    )


def _make_files(
    spec: PackageSpec, targets: tuple[str, ...], metadata: dict[str, object], folder: Path, static: bool
) -> list[tuple[Path, str]]:
    """Makes every file in ``folder``; (file, path in the package) in the order of installation."""
    build_id = str(metadata["build_id"])
    shared, archive = link(spec, _sources(spec, targets, metadata), folder, abi=ABI_VERSION, static=static)
    pretty = json_text(metadata, indent=1) + "\n"
    files = [
        (_copy(dlpack_folder() / "dlpack" / "dlpack.h", folder), "include/dlpack/dlpack.h"),
        *(
            (_copy(runtime_folder() / "include" / name, folder), f"include/{name}")
            for name in _RUNTIME_HEADERS
        ),
        (_text(folder / "header", header_source(spec, build_id)), f"include/{spec.name}.h"),
        (_text(folder / "cpp_header", cpp_header_source(spec)), f"include/{spec.name}.hpp"),
        *((_text(folder / Path(where).name, text), where) for where, text in build_files(spec).items()),
        (_text(folder / "metadata", pretty), "metadata.json"),
    ]
    bindings = {**crate_files(spec, build_id), **python_files(spec, build_id)}.items()
    files += [
        (_text(folder / f"binding_{number}", text), where) for number, (where, text) in enumerate(bindings)
    ]
    if archive is not None:
        files.append((archive, f"lib/{archive.name}"))
    link_name = soname(spec.name, ABI_VERSION)
    files.append((_symlink(folder / link_name, shared.name), f"lib/{link_name}"))
    return [*files, (shared, f"lib/{shared.name}")]


def _symlink(path: Path, target: str) -> Path:
    """What the dynamic linker looks for: the SONAME, beside the library."""
    path.symlink_to(target)
    return path


def build_files(spec: PackageSpec) -> dict[str, str]:
    """What pkg-config and CMake read, by the paths in the package."""
    cmake, version = f"lib/cmake/{spec.name}/{spec.name}", cmake_string(spec.version)
    named = {"name": spec.name, "soname": soname(spec.name, ABI_VERSION)}
    return {
        f"lib/pkgconfig/{spec.name}.pc": render("package.pc", version=pkg_config(spec.version), **named),
        f"{cmake}Config.cmake": render("Config.cmake", version=version, **named),
        f"{cmake}ConfigVersion.cmake": render("ConfigVersion.cmake", version=version, **named),
    }


def _text(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def _copy(path: Path, folder: Path) -> Path:
    return Path(shutil.copyfile(path, folder / path.name))


def _report(
    spec: PackageSpec, out_dir: Path, metadata: dict[str, object], folder: Path, files: list[tuple[Path, str]]
) -> BuildReport:
    paths = tuple(where for _, where in files)
    archive = f"lib/lib{spec.name}.a"
    library = (folder / f"lib{spec.name}.so").read_bytes()
    return BuildReport(
        name=spec.name,
        out_dir=out_dir,
        library=out_dir / "lib" / f"lib{spec.name}.so",
        archive=out_dir / archive if archive in paths else None,
        build_id=str(metadata["build_id"]),
        size=len(library),
        sha256=hashlib.sha256(library).hexdigest(),
        kernels=len(spec.kernels),
        variants=sum(len(kernel.variants) for kernel in spec.kernels),
        metadata=metadata,
        files=paths,
    )
