"""What kernels in process are compiled for: the spellings of a target, and what this machine has."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilec.backends.base import Backend, backends
from tilec.errors import InputError, UnsupportedError
from tilec.families import families
from tilec.language.tiles.device import provide_multiprocessors
from tilec.settings import read_settings
from tilec.spelling import nearest
from tilec.targets import Target, parse_target

_OTHER_VENDORS = ("metal", "webgpu", "cutedsl", "vulkan", "opencl")
#: The kind that stands for the device at hand.
AUTO = "auto"


def resolve_target(spec: Any = None) -> Target:
    """The target of ``spec``: None (TILEC_TARGET, else "auto"), "auto" (the first CUDA device, else the first
    AMD GPU, else this CPU), "cuda", "hip", "c", "cpu", "llvm", "native", with options such as
    "cuda -arch=sm_90a" and "llvm -mcpu=znver4", a dict with "kind", "arch" and "mcpu", a TVM Target, or a
    name of tilec's.

    Raises InputError, `UnsupportedError` for other vendors, EnvironmentError_ for "cuda" and "hip" without a
    device."""
    if isinstance(spec, Target):
        return spec
    named = spelling_of(read_settings().target if spec is None else spec)
    if named.kind in _OTHER_VENDORS:
        raise UnsupportedError(f"target {named.kind} is not supported", remedy="compile for cuda, hip or cpu")
    if named.kind == AUTO:
        return _here()[1]
    backend = _backend_of_kind(named.kind)
    if backend is not None:
        return backend.spelled(named.arch, named.mcpu)
    aliases = {alias: name for each in backends() for alias, name in each.aliases.items()}
    _refuse_slips(named.kind, [AUTO, *aliases, *(kind for each in backends() for kind in each.kinds)])
    return parse_target(aliases.get(named.kind, named.kind))


def _refuse_slips(kind: str, words: Sequence[str]) -> None:
    """Raises InputError for what is like a word of this process, more than like a name of a manifest."""
    names = [name for each in families() for name in each.names()]
    near = nearest(kind.partition("+")[0], [*names, *words])
    if near in words and near != kind:
        raise InputError(f"unknown target {kind!r}", remedy=f'did you mean "{near}"?')


def _backend_of_kind(kind: str) -> Backend | None:
    return next((each for each in backends() if kind in each.kinds), None)


def _here() -> tuple[Backend, Target]:
    """The first device of this machine: one beside its own cores, if there is some."""
    beside = sorted(backends(), key=lambda each: each.on_host)
    return next((each, target) for each in beside if (target := each.here()) is not None)


@dataclass(frozen=True)
class Spelling:
    """What a spelling says; empty where it does not."""

    kind: str
    arch: str = ""
    mcpu: str = ""


def spelling_of(spec: Any) -> Spelling:
    """What text, mapping or TVM Target says. Raises InputError for anything else."""
    if isinstance(spec, str) and spec.lstrip().startswith("{"):
        spec = _of_json(spec)
    if isinstance(spec, Mapping):
        return Spelling(*(str(spec.get(key) or "") for key in ("kind", "arch", "mcpu")))
    if not isinstance(spec, str) and hasattr(spec, "kind"):
        return _of_tvm(spec)
    if not isinstance(spec, str) or not spec.strip():
        raise InputError(f"{spec!r} is no target", remedy='write "cuda", "cpu" or a name such as "sm_90a"')
    kind, *options = spec.split()
    found = {name: re.search(rf"-{name}[= ](\S+)", " ".join(options)) for name in ("arch", "mcpu")}
    return Spelling(kind, *(match.group(1) if match else "" for match in found.values()))


def _of_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InputError(
            f"{text!r} is no target",
            why=f"it begins as JSON does, and is none: {error}",
            remedy='write for example {"kind": "cuda", "arch": "sm_90a"}',
        ) from error


def _of_tvm(target: Any) -> Spelling:
    """A TVM Target."""
    options, kind = {**getattr(target, "attrs", {})}, str(getattr(target.kind, "name", target.kind))
    arch, backend = str(options.get("arch") or getattr(target, "arch", "") or ""), _backend_of_kind(kind)
    arch = arch if backend is None else backend.tvm_arch(arch)
    return Spelling(kind, arch, str(options.get("mcpu") or ""))


def count_multiprocessors(device: int = 0) -> int:
    """The multiprocessors of a CUDA device; without a GPU, the CPUs of this process."""
    return _here()[0].units(device)


provide_multiprocessors(count_multiprocessors)
