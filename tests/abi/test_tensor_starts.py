"""Where tensors begin decides which variant runs, also of a call with a workspace, which is made before it,
and among schedules that cost chooses."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from samples import image, tensor

from tilec.codegen.image import WorkspaceSlice
from tilec.ir.guards import Guard
from tilec.package.model import DimRecord, KernelRecord, PackageSpec, VariantRecord
from tilec.package.write import write_package
from tilec.portable.loader import Library, load
from tilec.targets import native_host, native_target

#: Writes which variant ran, by way of the workspace.
_MARK = """
#include <stdint.h>
void {p}_0(const float* x, float* y, float* room, int64_t n, void* scratch, int64_t begin, int64_t end) {{
  for (int64_t i = begin; i < end; i++) y[i] = room[i] = %d;
}}
"""


#: Of two tensors: writes which variant ran.
_TOLD = """
#include <stdint.h>
void {p}_0(const float* x, const float* z, float* y, int64_t n, void* scratch, int64_t begin, int64_t end) {{
  for (int64_t i = begin; i < end; i++) y[i] = %d;
}}
"""
#: Schedules of a list: what they demand, the most elements that they are for, and their costs.
_LISTED = (
    ((("x", 16),), 1000, "N"),
    ((), None, "50"),
    ((("z", 16),), None, "30 + N / 200"),
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    host, target = native_host(), native_target().level
    variants = []
    for mark, align in ((1, (("x", 64),)), (2, ())):
        room = (WorkspaceSlice("room", f"{4 * mark} * N"),)
        made = image(f"marked_{mark}", _MARK % mark, [("N",)], target, host, workspace=room)
        variants.append(VariantRecord(target, (), made, align=align))
    params = (tensor("x", "float32", "N"), tensor("y", "float32", "N", access="out"))
    kernel = KernelRecord("marked", params, (DimRecord("N"),), tuple(variants))
    folder: Path = tmp_path_factory.mktemp("marked")
    return load(write_package(PackageSpec("marked", "1", host, (kernel, listed())), folder).library)


def listed() -> KernelRecord:
    """A kernel whose schedules demand different things of addresses."""
    host, target = native_host(), native_target().level
    variants = []
    for mark, (align, most, cost) in enumerate(_LISTED):
        made = image(f"told_{mark}", _TOLD % mark, [("N",)], target, host)
        guards = () if most is None else (("N", Guard(max=most)),)
        record = VariantRecord(target, guards, made, align=align, cost=cost, listed_under=())
        variants.append(record)
    params = (*(tensor(name, "float32", "N") for name in "xz"), tensor("y", "float32", "N", access="out"))
    return KernelRecord("told", params, (DimRecord("N"),), tuple(variants))


def test_the_loader_tells_where_tensors_begin(library: Library) -> None:
    block = np.zeros(256, np.uint8)
    first = -block.ctypes.data % 64
    for offset, mark in ((0, 1), (4, 2), (16, 2), (64, 1)):
        x = block[first + offset :][:32].view(np.float32)
        assert (library.marked(x) == mark).all()


def test_cost_chooses_among_schedules_that_fit_where_tensors_begin(library: Library) -> None:
    rng, block, taken = random.Random(0), np.zeros(1 << 14, np.uint8), set()
    first = -block.ctypes.data % 64
    for _ in range(400):
        n, offsets = rng.choice((8, 20, 45, 1200)), {name: rng.choice((0, 4)) for name in "xz"}
        x, z = (block[first + offset :][: 4 * n].view(np.float32) for offset in offsets.values())
        admitting = [
            (float(eval(cost, {"N": n})), mark)
            for mark, (align, most, cost) in enumerate(_LISTED)
            if n <= (most or n) and not any(offsets[name] for name, _ in align)
        ]
        mark = min(admitting)[1]
        assert (library.told(x, z) == mark).all(), (n, offsets)
        taken.add((n, mark))
    assert len(taken) > len(_LISTED)
