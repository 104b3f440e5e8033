"""From configs to libraries that the runner loads: compile processes, then one link for several."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tilec.build.records import CompiledVariant, compile_one
from tilec.codegen.toolchain import tool_versions
from tilec.errors import TilecError
from tilec.manifest import Variant
from tilec.package.model import PackageSpec, kernel_record
from tilec.package.write import write_package
from tilec.targets import Host


@dataclass(frozen=True)
class Uncompiled:
    """A config that no code could be made of."""

    reason: str


Made = CompiledVariant | Uncompiled


def entry_name(number: int) -> str:
    """The kernel of a candidate in its library."""
    return f"candidate_{number}"


def link(made: Mapping[int, CompiledVariant], host: Host, path: Path, tolerance: Mapping[str, float]) -> None:
    """Writes one library with a kernel for each candidate, by number."""
    kernels = tuple(
        kernel_record(entry_name(number), [(one.signature, one.record)], tolerance)
        for number, one in made.items()
    )
    spec = PackageSpec("candidates", "0", host, kernels, tool_versions(host))
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=path.parent) as folder:
        report = write_package(spec, Path(folder))
        shutil.move(report.library, path)


def compile_safely(variant: Variant) -> Made:
    """Compiles a variant; runs in a compile process."""
    try:
        return compile_one(variant)
    except TilecError as error:
        return Uncompiled("; ".join(part for part in (error.what, error.why) if part))


def registers_text(compiled: CompiledVariant) -> str:
    """What the assembler said of CUDA code; empty for other code."""
    launches: Sequence[object] = [one.gpu for one in compiled.record.image.launches if one.gpu is not None]
    return "; ".join(
        f"{getattr(one, 'registers', None)} registers, {getattr(one, 'spills', None)} bytes spilled"
        for one in launches
    )
