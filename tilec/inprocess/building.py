"""From tile IR to a loadable library with a card: what the call and its caller need to know beside it."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilec.cache import digest
from tilec.targets import parse_target

if TYPE_CHECKING:
    from tilec.ir.nodes import Kernel


@dataclass(frozen=True)
class Card:
    """A kernel in process beside its library. ``kernel`` is its name there, ``package`` the library's.

    ``order`` are the parameters of the Python function in order: (name, whether it is a scalar that sizes
    tensors, so that the library knows it as a dim). ``returned`` are the outputs in the order in which calls
    return them. ``device_source`` and ``host_source`` are what was compiled; ``tools`` what compiled it."""

    package: str
    kernel: str
    target: str
    order: tuple[tuple[str, bool], ...]
    returned: tuple[str, ...]
    ir_text: str
    device_source: str
    host_source: str
    tools: dict[str, str]

    def encode(self) -> bytes:
        """As bytes."""
        return zlib.compress(json.dumps(asdict(self)).encode(), 6)

    @staticmethod
    def decode(data: bytes) -> Card:
        """The inverse."""
        fields: dict[str, Any] = json.loads(zlib.decompress(data))
        order = tuple((name, sizes) for name, sizes in fields["order"])
        return Card(**{**fields, "order": order, "returned": tuple(fields["returned"])})


@dataclass(frozen=True)
class Job:
    """What a compile process gets: tile IR as text, and what of the card is known before."""

    ir_text: str
    target: str
    order: tuple[tuple[str, bool], ...]
    returned: tuple[str, ...]
    path: Path


def make_job(
    kernel: Kernel, target: str, order: tuple[tuple[str, bool], ...], returned: tuple[str, ...], path: Path
) -> Job:
    """The job of building ``kernel`` into ``path``."""
    from tilec.ir.text.printer import format_kernel

    return Job(format_kernel(kernel), target, order, returned, path)


def build(job: Job, kernel: Kernel | None = None, done: Callable[[str], None] = lambda _stage: None) -> Card:
    """Compiles and links; ``kernel`` is what the job's text says, where it is at hand; ``done`` is called
    after each stage. Raises SourceError, CompileError, PackageError and EnvironmentError_."""
    from tilec.codegen.toolchain import find_toolchain, tool_versions
    from tilec.ir.rules.verifier import verify
    from tilec.ir.text.parser import parse_kernel
    from tilec.package.model import PackageSpec, VariantRecord, kernel_record, signature
    from tilec.package.write import write_library

    kernel = kernel or parse_kernel(job.ir_text)
    verify(kernel)
    image, source = _compile(kernel, job)
    done("generated the code")
    guards = tuple((dim.name, dim.guard) for dim in kernel.dims if not dim.guard.is_dynamic)
    record = VariantRecord(job.target, guards, image, config_source="in process", ir_text=job.ir_text)
    tools = tool_versions()
    package = package_name(kernel.name, job)
    records = (kernel_record(kernel.name, [(signature(kernel), record)]),)
    host = write_library(PackageSpec(package, "0", find_toolchain().host, records, tools), job.path)
    done("linked the library")
    return Card(package, kernel.name, job.target, job.order, job.returned, job.ir_text, source, host, tools)


def _compile(kernel: Kernel, job: Job) -> tuple[Any, str]:
    """The image, and the source of its device code."""
    from tilec.backends.base import backend_of
    from tilec.backends.pipeline import lower
    from tilec.backends.to_tir import to_tir

    target = parse_target(job.target)
    lowered = to_tir(lower(kernel, target), target)
    backend, prefix = backend_of(target), package_name(kernel.name, job)
    image = backend.generator().compile_kernel(lowered, target, prefix)
    return image, backend.text("source", lowered, target, prefix)


def package_name(kernel: str, job: Job) -> str:
    """A name for the library that no other kernel's has: profilers and debuggers show it."""
    return f"{kernel}_{digest(job.ir_text, job.target)[:12]}"


def kernel_name(name: str) -> str:
    """A name that C takes."""
    plain = re.sub(r"\W", "_", name)
    return plain if re.match(r"[A-Za-z]", plain) else f"kernel_{plain}"
