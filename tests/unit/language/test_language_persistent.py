"""Persistent grids, safe values of reads outside, and questions about a device, through the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from language_build import DYNAMIC, build, call

import tilec.language as T
from tilec.carver.arch import driver
from tilec.errors import SourceValueError, UnsupportedError


def walk(M, N, blocks=3, group=8):
    @T.prim_func
    def main(Y: T.Tensor((M, N), "int32"), Z: T.Tensor((M, N), "int32")):
        with T.Kernel(blocks, threads=32) as pid:
            step = T.alloc_var("int32")
            for i, j in T.Persistent([M, N], blocks, pid, group_size=group):
                Y[i, j] = pid + 10
                Z[i, j] = step
                step += 1

    return main


@pytest.mark.parametrize("group", [1, 2, 8])
@pytest.mark.parametrize("shape", [(1, 1), (4, 5), (3, 16)])
@pytest.mark.parametrize("dims", [True, False])
def test_every_tile_comes_once_and_in_order(shape, group, dims):
    M, N = shape
    kernel = build(walk, {"M": DYNAMIC if dims else M, "N": DYNAMIC if dims else N}, group=group)
    y, z = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    call(kernel, {"M": M, "N": N}, y, z)
    width = max(1, min(group, N))
    tiles = -(-N // width) * width * M
    for number in range(tiles):
        j = number // width // M * width + number % width
        i = number // width % M
        if j < N:
            assert y[i, j] == number % 3 + 10
    for block in range(3):
        assert sorted(z[y == block + 10]) == list(range((y == block + 10).sum()))


def test_one_axis():
    @T.prim_func
    def main(Y: T.Tensor((10,), "int32")):
        with T.Kernel(4) as pid:
            for i in T.Persistent([10], 4, pid, group_size=1):
                Y[i] = pid

    y = np.full(10, -1, np.int32)
    call(build(main), {}, y)
    np.testing.assert_array_equal(y, np.arange(10) % 4)


def test_an_empty_domain_is_refused():
    @T.prim_func
    def main(Y: T.Tensor((10,), "int32")):
        with T.Kernel(4) as pid:
            for i in T.Persistent([], 4, pid):
                Y[i] = pid

    with pytest.raises(SourceValueError, match="one extent per loop variable"):
        build(main)


def test_reads_outside_give_the_safe_value():
    @T.prim_func
    def main(X: T.Tensor((6,), "float32"), Y: T.Tensor((8,), "float32"), Z: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            t = T.alloc_fragment((8,), "float32")
            T.annotate_safe_value({X: -1})
            T.copy(X[0:8], t)
            T.copy(t, Y)
            for i in T.Parallel(8):
                Z[i] = X[i - 1]

    x = np.arange(6, dtype=np.float32)
    y, z = np.zeros(8, np.float32), np.zeros(8, np.float32)
    call(build(main), {}, x, y, z)
    np.testing.assert_array_equal(y, [*x, -1, -1])
    np.testing.assert_array_equal(z, [-1, *x, -1])


def test_a_build_has_no_device_to_ask():
    @T.prim_func
    def main(X: T.Tensor((8,), "float32")):
        with T.Kernel(driver.get_num_sms()) as bx:
            X[bx] = 1.0

    with pytest.raises(UnsupportedError, match="config key") as caught:
        build(main)
    assert caught.value.place.file == __file__
