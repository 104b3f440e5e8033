"""Writes a package: headers first, the libraries last, each file renamed into place."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

from tilec.package.bindings.build_systems import build_files
from tilec.package.bindings.c import header_source
from tilec.package.bindings.cpp import cpp_header_source
from tilec.package.bindings.python import python_files
from tilec.package.bindings.rust import crate_files
from tilec.package.checks import check_spec, exported_symbols
from tilec.package.dispatch.order import dispatch_order, target_order
from tilec.package.dispatch.starts import with_starts
from tilec.package.install import install, scratch_folder
from tilec.package.library.link import Sources, link
from tilec.package.library.metadata import describe, ir_section, meta_section, to_json
from tilec.package.library.runtime import dlpack_folder, runtime_bytes, runtime_folder, runtime_source
from tilec.package.model import PackageSpec
from tilec.package.places import Place, places
from tilec.package.tables.library import tables_source
from tilec.package.templates import template_bytes
from tilec.package.text.escape import json_text

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
    return write_packages((spec,), out_dir, static=static)[0]


def write_packages(
    specs: Sequence[PackageSpec], out_dir: Path, *, static: bool = False
) -> tuple[BuildReport, ...]:
    """The same of a package with a library for each of several hosts, which have the same kernels: one tree
    with one header, and a report for each. Raises as `write_package`."""
    described = _of_one_build([_described(spec) for spec in specs])
    with scratch_folder(out_dir) as folder:
        made = [
            _make_library(each, place, folder / place.host.folder, static)
            for each, place in zip(described, places(specs), strict=True)
        ]
        files = [*_make_common(described, folder), *(file for each in made for file in each)]
        reports = tuple(
            _report(each, place, out_dir, folder / place.host.folder, files)
            for each, place in zip(described, places(specs), strict=True)
        )
        install(files, out_dir)
    return reports


def write_library(spec: PackageSpec, path: Path) -> str:
    """Links the shared library of ``spec`` alone, renames it to ``path``, and returns the C text of its
    tables: the host code that dispatches and launches. A process may open any number of such libraries.
    Raises as `write_package`."""
    described = _described(spec)
    sources = _sources(described)
    with scratch_folder(path.parent) as folder:
        shared, _ = link(described.spec, sources, folder, static=False)
        os.replace(shared, path)
    return sources.tables


def host_sources(spec: PackageSpec) -> dict[str, str]:
    """The C files of a library by name: its tables, which are the host code that dispatches and launches, and
    the runtime that they call. Raises PackageError when the spec is inconsistent."""
    sources = _sources(_described(spec))
    return {f"{spec.name}_tables.c": sources.tables, f"{spec.name}_runtime.c": sources.runtime}


class _Described(NamedTuple):
    """A checked spec in order, its targets best first, and its metadata."""

    spec: PackageSpec
    targets: tuple[str, ...]
    metadata: dict[str, object]

    @property
    def build_id(self) -> str:
        return str(self.metadata["build_id"])


def _described(spec: PackageSpec) -> _Described:
    spec = _sorted(spec)
    check_spec(spec)
    targets = target_order([variant for kernel in spec.kernels for variant in kernel.variants])
    metadata = describe(spec, targets)
    return _Described(spec, targets, {"build_id": _build_id(spec, metadata), **metadata})


def _of_one_build(each: Sequence[_Described]) -> Sequence[_Described]:
    """Libraries of several hosts have one header, so that they have one build id."""
    if len(each) == 1:
        return each
    joined = hashlib.sha256("".join(one.build_id for one in each).encode()).hexdigest()[:32]
    return [one._replace(metadata={**one.metadata, "build_id": joined}) for one in each]


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


def _sources(described: _Described) -> Sources:
    spec, targets, metadata = described
    text = to_json(metadata)
    return Sources(
        runtime=runtime_source(spec),
        tables=tables_source(spec, targets, described.build_id, len(text)),
        meta=meta_section(text),
        ir=ir_section(spec),
        exports=exported_symbols(spec),
    )


_Files: TypeAlias = "list[tuple[Path, str]]"


def _make_common(described: Sequence[_Described], folder: Path) -> _Files:
    """Makes in ``folder`` what all hosts share; (file, path in the package) in the order of installation."""
    spec, build_id = described[0].spec, described[0].build_id
    where = places([each.spec for each in described])
    texts = {
        f"include/{spec.name}.h": header_source(spec, build_id),
        f"include/{spec.name}.hpp": cpp_header_source(spec),
        **build_files(where, spec.version),
        **crate_files(spec, build_id, where),
        **python_files(spec, build_id),
    }
    return [
        (_copy(dlpack_folder() / "dlpack" / "dlpack.h", folder), "include/dlpack/dlpack.h"),
        *(
            (_copy(runtime_folder() / "include" / name, folder), f"include/{name}")
            for name in _RUNTIME_HEADERS
        ),
        *(
            (_text(folder / f"text_{number}", text), path)
            for number, (path, text) in enumerate(texts.items())
        ),
    ]


def _make_library(described: _Described, place: Place, folder: Path, static: bool) -> _Files:
    """Makes in ``folder`` what one host has for itself, the library last."""
    folder.mkdir()
    shared, archive = link(described.spec, _sources(described), folder, static=static)
    pretty = json_text(described.metadata, indent=1) + "\n"
    metadata = "metadata.json" if place.folder == "lib" else f"{place.folder}/metadata.json"
    files = [(_text(folder / "metadata", pretty), metadata)]
    if archive is not None:
        files.append((archive, place.archive))
    for beside in place.beside:
        path = folder / Path(beside).name
        if not path.exists():
            path.symlink_to(shared.name)
        files.append((path, beside))
    return [*files, (shared, place.library)]


def _text(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def _copy(path: Path, folder: Path) -> Path:
    return Path(shutil.copyfile(path, folder / path.name))


def _report(described: _Described, place: Place, out_dir: Path, folder: Path, files: _Files) -> BuildReport:
    spec, paths = described.spec, tuple(where for _, where in files)
    library = (folder / Path(place.library).name).read_bytes()
    return BuildReport(
        name=spec.name,
        out_dir=out_dir,
        library=out_dir / place.library,
        archive=out_dir / place.archive if place.archive in paths else None,
        build_id=described.build_id,
        size=len(library),
        sha256=hashlib.sha256(library).hexdigest(),
        kernels=len(spec.kernels),
        variants=sum(len(kernel.variants) for kernel in spec.kernels),
        metadata=described.metadata,
        files=paths,
    )
