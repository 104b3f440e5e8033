"""Dims whose products leave 32 bits: calls are served or refused in words, and nothing runs."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest
from doors import Door, tensor
from samples import image
from samples import tensor as parameter

from tilec.package.model import DimRecord, KernelRecord, PackageSpec, VariantRecord
from tilec.package.write import write_package
from tilec.portable.loader import Library, load
from tilec.targets import Host, native_host

#: The tensor's first element becomes the number of the launch's blocks; they run one after the other here.
LAST = """
#include <stdint.h>
void {p}_0(int64_t* x, int64_t m, int64_t n, void* scratch, int64_t begin, int64_t end) {{
  if (x[0] < end) x[0] = end;
}}
"""
#: The most blocks along an axis of a grid.
MOST = 2**31 - 1 - 2**20


def kernel(name: str, grid: tuple[str, ...], needs: str, host: Host) -> KernelRecord:
    target = "x86-64-v2" if host.arch == "x86_64" else "aarch64"
    made = replace(image(f"large_{name}", LAST, [grid], target, host), needs=needs)
    params = (parameter("x", "int64", "M", "N", access="inout"),)
    variant = VariantRecord(target, (), made, config={}, ir_text="kernel")
    return KernelRecord(name, params, (DimRecord("M"), DimRecord("N")), (variant,), "")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    host = native_host()
    kernels = (
        kernel("flat", ("(M * N + 1048575) // 1048576",), "", host),
        kernel("blocks", ("M * N",), "", host),
        kernel("narrow", ("1",), f"(M * N <= {MOST}) and (M + N <= 100000)", host),
    )
    spec = PackageSpec("large", "1.0.0", host, kernels, {"tilec": "test"})
    return load(write_package(spec, tmp_path_factory.mktemp("large")).library)


def call(library: Library, name: str, rows: int, columns: int) -> tuple[str, str, int]:
    """What a call says of a tensor of that shape, of which a single element is there, and what that holds."""
    memory = np.zeros((1, 1), np.int64)
    kind = ctypes.c_int64 * 2
    given = tensor(memory, shape=kind(rows, columns), strides=kind(columns, 1))
    status, text = Door(library, name).launch([given])
    return status, text if status != "TILEC_OK" else "", int(memory[0, 0])


def test_products_of_dims_beyond_four_billion_are_served(library: Library) -> None:
    assert call(library, "flat", 65536, 65536) == ("TILEC_OK", "", 4096)
    assert call(library, "flat", 65536, 32768) == ("TILEC_OK", "", 2048)


def test_more_blocks_than_32_bits_count_are_refused(library: Library) -> None:
    status, text, ran = call(library, "blocks", 65536, 65536)
    assert (status, ran) == ("TILEC_ERR_SHAPE", 0)
    assert f"4294967296 blocks along x, kernels count up to {MOST}" in text


def test_what_a_variant_needs_of_its_dims_is_said(library: Library) -> None:
    assert call(library, "narrow", 40000, 50000)[0] == "TILEC_OK"
    status, text, ran = call(library, "narrow", 65536, 33000)
    assert (status, ran) == ("TILEC_ERR_SHAPE", 0)
    assert (
        f"narrow: these dims are too large for 32-bit indices: (M * N <= {MOST}) and (M + N <= 100000) does"
        in text
    )
    assert call(library, "narrow", 100001, 0)[0] == "TILEC_ERR_SHAPE"
