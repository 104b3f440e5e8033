"""What a build writes beside the library where it is asked to: wheels, operators of frameworks, sources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilec.manifest import Plan
    from tilec.package.model import PackageSpec
    from tilec.package.write import BuildReport


@dataclass(frozen=True)
class Asked:
    """Which of them are asked for; ``sources`` is the folder for the source files."""

    wheel: bool = False
    hub: bool = False
    torch: bool = False
    onnxruntime: bool = False
    sources: Path | None = None

    def lacking(self, spec: PackageSpec) -> Iterator[str]:
        """Which kernels the libraries of operators lack."""
        from tilec.package.operators.onnxruntime import operators
        from tilec.package.operators.torch import torch_kernels

        found = ((self.torch, "torch", torch_kernels), (self.onnxruntime, "ONNX Runtime", operators))
        for asked, name, kernels in found:
            served = {kernel.name for kernel in kernels(spec)} if asked else set()
            names = [kernel.name for kernel in spec.kernels if asked and kernel.name not in served]
            if names:
                why = "no code for its devices, or elements of a type that it lacks"
                yield f"no operators of {name}: {', '.join(names)} ({why})"


LIBRARY_ALONE = Asked()


@dataclass(frozen=True)
class Beside:
    """What was written: ``wheels`` and ``sources``, the folder for the kernel ``hub``, and the libraries of
    operators of ``torch`` and ``onnxruntime``."""

    wheels: tuple[Path, ...] = ()
    sources: tuple[Path, ...] = ()
    hub: Path | None = None
    torch: tuple[Path, ...] = ()
    onnxruntime: tuple[Path, ...] = ()


def write_beside(
    asked: Asked,
    plans: Sequence[Plan],
    specs: Sequence[PackageSpec],
    reports: Sequence[BuildReport],
    jobs: int,
) -> Beside:
    """Writes what is asked for, with ``jobs`` compile processes for sources. Raises errors of the tree."""
    return Beside(
        wheels=_wheels(specs, reports) if asked.wheel else (),
        sources=_sources(plans[0], specs[0], asked.sources, jobs) if asked.sources is not None else (),
        hub=_hub(specs, reports) if asked.hub else None,
        torch=_torch(specs, reports) if asked.torch else (),
        onnxruntime=_onnxruntime(specs, reports) if asked.onnxruntime else (),
    )


def _sources(plan: Plan, spec: PackageSpec, folder: Path, jobs: int) -> tuple[Path, ...]:
    from tilec.build.written.sources import emit_sources

    return emit_sources(plan.variants, spec, folder, jobs)


def _wheels(specs: Sequence[PackageSpec], reports: Sequence[BuildReport]) -> tuple[Path, ...]:
    from tilec.package.bindings.wheel import write_wheel

    return tuple(write_wheel(*each) for each in zip(specs, reports, strict=True))


def _hub(specs: Sequence[PackageSpec], reports: Sequence[BuildReport]) -> Path:
    from tilec.package.hub.folder import write_hub

    return write_hub(specs, reports)


def _torch(specs: Sequence[PackageSpec], reports: Sequence[BuildReport]) -> tuple[Path, ...]:
    from tilec.package.operators.torch import write_torch_operators

    return write_torch_operators(specs, reports)


def _onnxruntime(specs: Sequence[PackageSpec], reports: Sequence[BuildReport]) -> tuple[Path, ...]:
    from tilec.package.operators.onnxruntime import write_operators

    return write_operators(specs, reports)
