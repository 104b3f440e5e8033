"""The sources of a library: device code of every variant, and the C that dispatches and launches it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tilec.build.elaborated.frontend import elaborate_variant, naming
from tilec.build.processes.pool import run_tasks
from tilec.build.reuse.images import symbol_prefix
from tilec.errors import PackageError, Place
from tilec.manifest import Variant
from tilec.package.model import PackageSpec

#: Folder of the C runtime beside the emitted sources, as the host's code includes it.
_RUNTIME = "runtime"


@dataclass(frozen=True)
class Source:
    """The text of a variant's device code; ``name`` is its file's."""

    name: str
    text: str


def emit_sources(variants: Sequence[Variant], spec: PackageSpec, folder: Path, jobs: int) -> tuple[Path, ...]:
    """Writes ``<kernel>_<digest>.<target>.cu`` or ``.c`` for every variant, ``<library>_tables.c`` and
    ``<library>_runtime.c`` for the host, and the runtime that these include; returns all but that.

    CPU code that C has no words for is written as LLVM IR, ``.ll``. Raises PackageError where ``folder``
    cannot be written."""
    from tilec.package.write import host_sources

    found: dict[str, str] = {}

    def done(_at: int, made: Source) -> None:
        found[made.name] = made.text

    run_tasks(source_of, list(variants), jobs, done, lambda one: one.title)
    found.update(host_sources(spec))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in found.items():
            (folder / name).write_text(text, encoding="utf-8")
        _copy_runtime(folder / _RUNTIME)
    except OSError as error:
        raise PackageError(
            f"the sources cannot be written to {folder}",
            place=Place(str(folder)),
            why=error.strerror or str(error),
            remedy="choose another folder with --emit-source, or make it writable",
        ) from error
    return tuple(folder / name for name in sorted(found))


def source_of(variant: Variant) -> Source:
    """The device code of a variant; runs in a compile process."""
    from tilec.backends.base import backend_of
    from tilec.backends.pipeline import lower
    from tilec.backends.to_tir import to_tir

    kernel = elaborate_variant(variant).kernel
    with naming(variant):
        lowered = to_tir(lower(kernel, variant.target), variant.target)
        prefix = symbol_prefix(lowered, variant.target)
        backend = backend_of(variant.target)
        text = backend.text("source", lowered, variant.target, prefix)
    return Source(f"{prefix}.{variant.target.name}{backend.source_suffix(text)}", text)


def _copy_runtime(folder: Path) -> None:
    from tilec.package.library.runtime import dlpack_folder, runtime_folder

    for part in ("include", "src"):
        shutil.copytree(runtime_folder() / part, folder / part, dirs_exist_ok=True)
    (folder / "include" / "dlpack").mkdir(exist_ok=True)
    shutil.copy(dlpack_folder() / "dlpack" / "dlpack.h", folder / "include" / "dlpack")
