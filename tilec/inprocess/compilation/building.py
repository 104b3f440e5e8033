"""From tile IR to a loadable library with a card: what the call and its caller need to know beside it."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilec.cache import digest
from tilec.errors import CompileError, UnsupportedError
from tilec.targets import parse_target

if TYPE_CHECKING:
    from tilec.ir.nodes import Kernel
    from tilec.lowering.lowered import LoweredKernel
    from tilec.package.model import VariantRecord
    from tilec.targets import Target


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


@dataclass(frozen=True, eq=False)
class _Form:
    """Tile IR of a kernel, what it is lowered to, and the name by which its functions begin; that of the form
    for all sizes is the library's."""

    kernel: Kernel
    ir_text: str
    target: Target
    lowered: LoweredKernel
    prefix: str

    @property
    def losses(self) -> int:
        """Statements that are slower than they might be."""
        from tilec.ir.roads import losses

        return len(losses(road for launch in self.lowered.launches for road in launch.roads))

    @cached_property
    def record(self) -> VariantRecord:
        """The variant of it. Raises CompileError."""
        from tilec.backends.base import backend_of
        from tilec.package.model import VariantRecord

        image = backend_of(self.target).generator().compile_kernel(self.lowered, self.target, self.prefix)
        guards = tuple((dim.name, dim.guard) for dim in self.kernel.dims if not dim.guard.is_dynamic)
        name = self.target.name
        return VariantRecord(name, guards, image, config_source="in process", ir_text=self.ir_text)

    @property
    def source(self) -> str:
        """The source of its device code."""
        from tilec.backends.base import backend_of

        return backend_of(self.target).text("source", self.lowered, self.target, self.prefix)


def build(job: Job, kernel: Kernel | None = None, done: Callable[[str], None] = lambda _stage: None) -> Card:
    """Compiles and links; ``kernel`` is what the job's text says, where it is at hand; ``done`` is called
    after each stage. Raises SourceError, CompileError, PackageError and EnvironmentError_."""
    from tilec.codegen.toolchain import find_toolchain, tool_versions
    from tilec.ir.text.parser import parse_kernel
    from tilec.language.frontend.review.verified import verify_source
    from tilec.package.model import PackageSpec, kernel_record, signature
    from tilec.package.write import write_library

    kernel = kernel or parse_kernel(job.ir_text)
    verify_source(kernel)
    forms = _forms(kernel, job.ir_text, parse_target(job.target))
    variants = [(signature(form.kernel), form.record) for form in forms]
    done("generated the code")
    tools, package = tool_versions(), forms[-1].prefix
    records = (kernel_record(kernel.name, variants),)
    host = write_library(PackageSpec(package, "0", find_toolchain().host, records, tools), job.path)
    done("linked the library")
    source = _sources(forms)
    return Card(package, kernel.name, job.target, job.order, job.returned, job.ir_text, source, host, tools)


def _forms(kernel: Kernel, ir_text: str, target: Target) -> list[_Form]:
    """The kernel, and in front of it those for sizes that have whole vectors, where they have fewer
    statements that are slower than they might be, and room for what takes their place."""
    from tilec.inprocess.compilation.whole_vectors import for_vectors
    from tilec.ir.text.printer import format_kernel

    forms = [_form(kernel, ir_text, target)]
    for closer in for_vectors(kernel, target) if forms[0].losses else ():
        try:
            form = _form(closer, format_kernel(closer), target)
            if form.losses < forms[0].losses and form.record:
                forms.insert(0, form)
        except (CompileError, UnsupportedError):
            continue
        if not form.losses:
            break
    return forms


def _form(kernel: Kernel, ir_text: str, target: Target) -> _Form:
    from tilec.backends.pipeline import lower
    from tilec.backends.to_tir import to_tir

    lowered = to_tir(lower(kernel, target), target)
    prefix = f"{kernel.name}_{digest(ir_text, target.name)[:12]}"  # no other kernel's: profilers show it
    return _Form(kernel, ir_text, target, lowered, prefix)


def _sources(forms: Sequence[_Form]) -> str:
    """The device code of all, each under the sizes that it serves where there are several."""
    from tilec.inprocess.compilation.whole_vectors import served

    if len(forms) == 1:
        return forms[0].source
    return "\n".join(f"// {served(form.kernel)}\n{form.source}" for form in forms)


def kernel_name(name: str) -> str:
    """A name that C takes."""
    plain = re.sub(r"\W", "_", name)
    return plain if re.match(r"[A-Za-z]", plain) else f"kernel_{plain}"
