"""The folder of a problem for `tilec.portable.runner`: its points, small cases, what outputs should be.

Tensors at the points of a problem are large: a block of the inputs is stored and repeated, but for integers
that index something, which are stored whole. The reference gets just these inputs; where it would take too
long, candidates are compared with the first one that was right on the small cases, whose outputs are known in
full.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from tilec.build.schedules.examine import Examined
from tilec.errors import TuneError
from tilec.ir.interp.values import is_float, numpy_dtype
from tilec.package.model import ParamRecord
from tilec.portable.runner.tensors import span
from tilec.trials.facts import KernelFacts, VariantFacts
from tilec.trials.oracle import Author, Oracle
from tilec.trials.shapes import cases, fit, is_legal, stride_dims, with_strides
from tilec.trials.work import work_of
from tilec.tune.outcome.results import PointFacts
from tilec.tune.plan.planning import Planned
from tilec.tune.plan.points import Point

#: Of the inputs of cases and points.
_SEED = 0
#: Elements of a block: a prime, so that rows of a matrix differ.
_BLOCK = 65521
#: Bytes of integers that are stored whole.
_MOST_WHOLE = 8 << 20
#: Elements of an output that are looked at.
_SAMPLES = 2048
#: Operations and bytes of a call up to which the reference is asked: seconds of NumPy.
_MOST_FLOPS, _MOST_BYTES = 5e10, 1 << 30
_CASES, _CASE_ELEMENTS, _MOST_ATTEMPTS = 2, 1 << 16, 8


@dataclass
class _Arrays:
    """Contents, one behind the other."""

    data: bytearray
    known: dict[bytes, int] = field(default_factory=dict)

    def add(self, block: bytes) -> dict[str, int]:
        """Where a block lies, which is there once."""
        offset = self.known.setdefault(block, len(self.data))
        if offset == len(self.data):
            self.data += block
        return {"offset": offset, "bytes": len(block)}


def kernel_facts(planned: Planned) -> tuple[KernelFacts, VariantFacts, Examined]:
    """A problem's kernel as `tilec.verify` sees it, by the first config that its target can have."""
    number = planned.order[0]
    examined, variant = planned.facts[number], planned.problem.variant
    guards = {name: guard for name, guard in variant.dims.items() if not guard.is_dynamic}
    config = planned.problem.configs[number]
    tiles = frozenset(value for value in config.values() if type(value) is int and value >= 4)
    grids = tuple(launch.grid for launch in examined.launches)
    one = VariantFacts(
        0, variant.target.name, guards, tiles, examined.ir_text, grids, tolerance=variant.tolerance
    )
    dims = tuple(dim.name for dim in examined.signature.dims)
    return (
        KernelFacts(
            variant.kernel, examined.signature.params, dims, (one,), planned.problem.kernel.tolerance
        ),
        one,
        examined,
    )


def whole_dims(kernel: KernelFacts, variant: VariantFacts, point: Point) -> dict[str, int]:
    """The dims of a point with those that stand in strides alone: as small as they can be, unless given."""
    missing = [name for name in stride_dims(kernel) if name not in point.dims]
    known = {**{name: fit(variant.guard(name), 1) for name in missing}, **point.dims}
    absent = [name for name in kernel.dims if name not in known]
    if absent:
        raise TuneError(f"a point of {kernel.name} gives no {', '.join(absent)}", remedy="give every dim")
    filled = known if not missing and is_legal(kernel, known) else with_strides(kernel, variant, known, False)
    if filled is None:
        raise TuneError(f"{kernel.name} has no tensors of the shape {point.text}")
    return {name: filled[name] for name in kernel.dims}


def write_problem(folder: Path, planned: Planned, author: Author) -> tuple[PointFacts, ...]:
    """Writes ``problem.json`` and ``arrays.bin``; returns what a call does at each point. Raises TuneError
    where there are no inputs for a point."""
    writer = _Writer(planned, author)
    made = [writer.point(point) for point in planned.problem.points]
    described = {"points": [point for point, _ in made], "cases": writer.cases()}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "arrays.bin").write_bytes(zlib.compress(bytes(writer.arrays.data), 6))
    (folder / "problem.json").write_text(json.dumps(described))
    return tuple(facts for _, facts in made)


class _Writer:
    """The parts of one problem; ``arrays`` collects their contents."""

    def __init__(self, planned: Planned, author: Author) -> None:
        self.kernel, self.variant, _ = kernel_facts(planned)
        self.oracle, self.arrays = Oracle(self.kernel, author), _Arrays(bytearray())

    def cases(self) -> list[dict[str, Any]]:
        """The largest of the small cases that stay small enough, and whose outputs are known."""
        found = []
        for number, dims in enumerate(islice(cases(self.kernel, self.variant, _SEED), _MOST_ATTEMPTS)):
            expected = self.oracle.expect(self.variant, dims, number)
            if expected.problem:
                continue
            held = {name: _stored(self.kernel, name, one, dims) for name, one in expected.values.items()}
            size = sum(np.size(each) for each in held.values())
            found.append((size > _CASE_ELEMENTS, -size, dims, held, expected.outputs))
        chosen = sorted(found, key=lambda one: one[:2])[:_CASES]
        return [self._described(dims, held, outputs, whole=True) for _, _, dims, held, outputs in chosen]

    def point(self, point: Point) -> tuple[dict[str, Any], PointFacts]:
        """A point, and what a call does there."""
        dims = whole_dims(self.kernel, self.variant, point)
        values = self._values(point, dims)
        work = work_of(self.kernel, self.variant.ir_text, dims, values)
        held = {name: _stored(self.kernel, name, value, dims) for name, value in values.items()}
        outputs = None
        if self._is_affordable(dims, work.total_flops):
            repeated = {name: _repeated(self.kernel, name, value, dims) for name, value in held.items()}
            expected = self.oracle.referred(repeated)
            outputs = None if expected is None else expected.outputs
        dtype = max(work.flops, key=lambda one: work.flops[one], default="")
        facts = PointFacts(point.text, point.weight, work.total_flops, dtype, work.bytes)
        return self._described(dims, held, outputs, whole=False), facts

    def _values(self, point: Point, dims: Mapping[str, int]) -> dict[str, Any]:
        try:
            return self.oracle.inputs(self.variant, dims, np.random.default_rng(_SEED))
        except Exception as error:
            raise TuneError(
                f"there are no inputs for {self.kernel.name} at {point.text}",
                why=f"{type(error).__name__}: {error}",
                remedy="give points that the inputs of the manifest take",
            ) from error

    def _is_affordable(self, dims: Mapping[str, int], flops: float) -> bool:
        """Whether NumPy may compute the outputs of a point."""
        moved = sum(math.prod(param.shape(dims)) * 8 for param in self.kernel.tensors)
        return moved <= _MOST_BYTES and flops <= _MOST_FLOPS

    def _described(
        self,
        dims: Mapping[str, int],
        held: Mapping[str, Any],
        outputs: Mapping[str, np.ndarray] | None,
        *,
        whole: bool,
    ) -> dict[str, Any]:
        params = _params(self.kernel, dims, held, self.arrays, whole=whole)
        checks = _checks(self.kernel, self.variant, self.oracle, dims, outputs, is_large=not whole)
        return {"dims": dict(dims), "params": params, "checks": checks}


def _stored(kernel: KernelFacts, name: str, value: Any, dims: Mapping[str, int]) -> Any:
    """An array as it lies in memory: its elements at their strides, zeros between them."""
    param = next(each for each in kernel.params if each.name == name)
    if not param.is_tensor:
        return value
    shape, strides = param.shape(dims), param.element_strides(dims)
    flat = np.zeros(span(shape, strides), numpy_dtype(param.dtype))
    if flat.size:
        _view(flat, shape, strides)[...] = value
    return flat


def _repeated(kernel: KernelFacts, name: str, flat: Any, dims: Mapping[str, int]) -> Any:
    """What a tensor holds when a block of it is repeated."""
    param = next(each for each in kernel.params if each.name == name)
    if not param.is_tensor or not flat.size:
        return flat if not param.is_tensor else flat.reshape(param.shape(dims))
    filled = flat if _is_whole(param, flat) else np.resize(flat[:_BLOCK], flat.size)
    return _view(filled, param.shape(dims), param.element_strides(dims))


def _is_whole(param: ParamRecord, flat: np.ndarray) -> bool:
    """Whether a tensor is stored in full: a small one, or integers that may index something."""
    if flat.size <= _BLOCK:
        return True
    dtype = numpy_dtype(param.dtype)
    return not is_float(dtype) and dtype.itemsize > 1 and flat.nbytes <= _MOST_WHOLE


def _params(
    kernel: KernelFacts, dims: Mapping[str, int], held: Mapping[str, Any], arrays: _Arrays, *, whole: bool
) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    for param in kernel.params:
        if not param.is_tensor:
            entries.append({"name": param.name, "value": _number(held[param.name])})
            continue
        entry: dict[str, Any] = {
            "name": param.name,
            "dtype": param.dtype,
            "shape": param.shape(dims),
            "strides": param.element_strides(dims),
        }
        flat = held.get(param.name)
        if flat is not None and flat.size:
            block = flat if whole or _is_whole(param, flat) else flat[:_BLOCK]
            entry["fill"] = arrays.add(block.tobytes())
        entries.append(entry)
    return entries


def _number(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _checks(
    kernel: KernelFacts,
    variant: VariantFacts,
    oracle: Oracle,
    dims: Mapping[str, int],
    outputs: Mapping[str, np.ndarray] | None,
    *,
    is_large: bool,
) -> dict[str, Any]:
    """Per output: which elements to look at, the tolerance and, where it is known, what they should be. Sums
    of many terms (``is_large``) that come to little are as far off as their neighbours, so that the absolute
    tolerance goes with the size of these."""
    tolerance = oracle.tolerance(variant)
    found: dict[str, Any] = {}
    for param in kernel.tensors:
        shape, strides = param.shape(dims), param.element_strides(dims)
        count = math.prod(shape)
        if not param.is_written or not count:
            continue
        chosen = _chosen(count)
        offsets = np.stack(np.unravel_index(chosen, shape), axis=-1) @ np.asarray(strides, np.int64)
        counts_whole = not is_float(numpy_dtype(param.dtype)) and tolerance.rtol > 0
        check = {
            "offsets": offsets.tolist(),
            "rtol": tolerance.rtol,
            "atol": 1.0 if counts_whole else tolerance.atol * (_size(outputs, param.name) if is_large else 1),
            "max_mismatch": tolerance.max_mismatch,
        }
        if outputs is not None:
            check["expected"] = (
                np.asarray(outputs[param.name]).astype(np.float64).reshape(-1)[chosen].tolist()
            )
        found[param.name] = check
    return found


def _size(outputs: Mapping[str, np.ndarray] | None, name: str) -> float:
    """The root of the mean square of an output where it is known, 1 at least."""
    if outputs is None:
        return 1.0
    mean = float(np.mean(np.square(np.asarray(outputs[name]).astype(np.float64))))
    return max(1.0, math.sqrt(mean)) if math.isfinite(mean) else 1.0


def _chosen(count: int) -> np.ndarray:
    """All elements, or some everywhere with both ends."""
    if count <= _SAMPLES:
        return np.arange(count)
    ends = _SAMPLES // 8
    middle = np.random.default_rng(count).integers(ends, count - ends, _SAMPLES - 2 * ends)
    return np.concatenate([np.arange(ends), np.unique(middle), np.arange(count - ends, count)])


def _view(flat: np.ndarray, shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    steps = [stride * flat.itemsize for stride in strides]
    return np.asarray(np.ndarray(shape, flat.dtype, flat.view(np.uint8), strides=steps))
