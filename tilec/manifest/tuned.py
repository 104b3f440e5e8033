"""`<stem>.tuned.toml`: measured configs beside the manifest.

    edition = 1

    [[tuned]]
    kernel = "matmul_float32"
    target = "x86-64-v4"
    dims = { M = "1..64", N = 4096, K = 4096 }
    config = { block_M = 64 }
    latency_us = 12.5
    device = "..."
    driver = "..."                 # this and what follows but the hash and the date are optional
    compiler = "..."
    noise = 0.01                   # spread of the measurements, as a share of the latency
    tflops = 0.9                   # or gbps, with the share of the device's limit
    share = 0.4
    default_us = 14.0              # the manifest's own config, in the same run
    at = ["M=64 N=4096 K=4096"]    # where it was measured; latencies are means over these
    trials = 72                    # configs that were measured
    source_sha256 = "..."          # of the kernel's source file when it was measured
    date = "2026-01-31"

An entry belongs to the variant with the same kernel, target and guards. One whose source has changed since is
used, with a warning. `tilec tune` writes the file (`tilec.tune.outcome.database`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StrictStr, ValidationError

from tilec.errors import ManifestError
from tilec.ir.guards import Guard
from tilec.manifest.expansion.variants import Variant
from tilec.manifest.fields import OneGuard
from tilec.manifest.model import Table
from tilec.manifest.sources import source_sha256
from tilec.manifest.text.document import Document, format_path, read_document
from tilec.portable.dims import dims_text
from tilec.spelling import suggestion


class TunedEntry(Table):
    """One measurement: what won for a kernel on an architecture under a guard."""

    kernel: StrictStr
    target: StrictStr
    dims: dict[StrictStr, OneGuard] = Field(default={})
    config: dict[StrictStr, Any]
    latency_us: float
    device: StrictStr
    driver: StrictStr | None = None
    compiler: StrictStr | None = None
    noise: float | None = None
    tflops: float | None = None
    gbps: float | None = None
    share: float | None = None
    default_us: float | None = None
    at: tuple[StrictStr, ...] = ()
    trials: int | None = None
    source_sha256: StrictStr
    date: Annotated[StrictStr, BeforeValidator(str)]


class TunedFile(Table):
    """The whole file."""

    edition: Literal[1]
    tuned: tuple[TunedEntry, ...] = ()


@dataclass(frozen=True)
class TunedConfigs:
    """The entries of the file beside a manifest; none when there is no file."""

    path: Path
    entries: tuple[TunedEntry, ...] = ()

    def warnings(self, variants: Sequence[Variant]) -> tuple[str, ...]:
        """Entries that are stale, or that no variant of the manifest uses."""
        lines = (self._warning(entry, variants) for entry in self.entries)
        return tuple(line for line in lines if line)

    def _warning(self, entry: TunedEntry, variants: Sequence[Variant]) -> str:
        users = [one for one in variants if _matches(entry, one.kernel, one.target.name, one.dims)]
        guards = dims_text(entry.dims)
        title = f"{self.path}: the entry of {entry.kernel} on {entry.target} {guards}".rstrip()
        if not users:
            return f"{title} belongs to no variant of the manifest and is not used"
        if users[0].is_schedule:
            why = "its variants have schedules, which tuned configs do not replace"
            return f"{title} is not used: {why}; remove the entry, or the schedules of the override"
        if source_sha256(users[0].source, users[0].base) != entry.source_sha256:
            return f"{title} is stale: {users[0].source} changed since {entry.date}; it is used all the same"
        return ""

    def entry(self, kernel: str, target: str, dims: Mapping[str, Guard]) -> TunedEntry | None:
        """What was measured for a variant, or None. The last of several entries counts."""
        found = [entry for entry in self.entries if _matches(entry, kernel, target, dims)]
        return found[-1] if found else None


def _matches(entry: TunedEntry, kernel: str, target: str, dims: Mapping[str, Guard]) -> bool:
    return entry.kernel == kernel and entry.target == target and dict(entry.dims) == dict(dims)


def tuned_path(manifest: Path) -> Path:
    """The file beside a manifest."""
    return manifest.with_suffix(".tuned.toml")


def read_tuned(manifest: Path) -> TunedConfigs:
    """The file beside ``manifest``. Raises ManifestError when it is there and wrong."""
    path = tuned_path(manifest)
    if not path.exists():
        return TunedConfigs(path)
    document = read_document(path)
    try:
        return TunedConfigs(path, TunedFile.model_validate(document.data).tuned)
    except ValidationError as error:
        raise _tuned_error(document, error) from error


def _tuned_error(document: Document, error: ValidationError) -> ManifestError:
    problems = sorted(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
    first = problems[0]
    if first["type"] == "extra_forbidden":
        name = str(first["loc"][-1])
        known = TunedEntry.model_fields if len(first["loc"]) > 1 else TunedFile.model_fields
        return ManifestError(
            f'unknown key "{name}"', place=document.place(*first["loc"]), remedy=suggestion(name, known)
        )
    place = document.place(*first["loc"])
    return ManifestError(
        f'the value of "{format_path(first["loc"])}" cannot be used',
        place=place,
        why=first["msg"],
        remedy="correct the entry, or remove it and tune again",
    )
