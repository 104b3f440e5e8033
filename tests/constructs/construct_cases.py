"""Cases of the construct tests for a machine with a GPU: one library, in the folder of `make gpu-bundle`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from example_modules import module_of
from variant_code import compile_variant

from tilec.ir.nodes import Kernel
from tilec.ir.text.printer import format_kernel
from tilec.package.model import PackageSpec, VariantRecord, kernel_record, signature
from tilec.package.write import write_package
from tilec.targets import native_host, parse_target
from tilec.trials.comparison import Tolerance
from tilec.trials.facts import facts_of
from tilec.trials.oracle import Expectation

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu" / "bundle.py"
TARGET = "sm_90a"


class CudaCases:
    """What a run of the tests meets, compiled for one target, and written to ``folder`` at its end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._bundle = module_of(SCRIPT, "gpu_bundle_script")
        self._blobs = self._bundle.Blobs()
        self._records: list[Any] = []
        self._entries: list[dict[str, Any]] = []

    def add(
        self, kernel: Kernel, dims: Mapping[str, int], expected: Expectation, tolerance: Tolerance
    ) -> None:
        """One call of a kernel; addresses are of this machine and stay here."""
        if '"global.address"' in format_kernel(kernel):
            return
        name = f"k{len(self._records):04}"
        image = compile_variant(kernel, parse_target(TARGET), name)
        guards = tuple((dim.name, dim.guard) for dim in kernel.dims if not dim.guard.is_dynamic)
        variant = VariantRecord(TARGET, guards, image, ir_text=format_kernel(kernel))
        self._records.append(kernel_record(name, [(signature(kernel), variant)]))
        facts = facts_of(replace(kernel, name=name), TARGET)
        entry = self._bundle.case_entry(facts, facts.variants[0], dims, expected, tolerance, self._blobs)
        entry["variant"] = len(self._records) - 1  # variants count through the library
        self._entries.append(entry)

    def write(self) -> None:
        """The library and the folder of the runner."""
        spec = PackageSpec("constructs", "0", native_host(), tuple(self._records))
        library = write_package(spec, self._folder.with_suffix(".library")).library
        self._bundle.write_folder(library, self._folder, self._entries, self._blobs)
