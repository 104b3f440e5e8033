"""A call with a workspace, which is made before it, runs the variant that fits where its tensors begin."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from samples import image, tensor

from tilec.codegen.image import WorkspaceSlice
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
    return load(write_package(PackageSpec("marked", "1", host, (kernel,)), folder).library)


def test_the_loader_tells_where_tensors_begin(library: Library) -> None:
    block = np.zeros(256, np.uint8)
    first = -block.ctypes.data % 64
    for offset, mark in ((0, 1), (4, 2), (16, 2), (64, 1)):
        x = block[first + offset :][:32].view(np.float32)
        assert (library.marked(x) == mark).all()
