"""Persistent grids, safe values of reads outside, and questions about a device, through the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from language_build import DYNAMIC, build, call

import tilec.language as T
from tilec.carver.arch import driver
from tilec.errors import SourceError, SourceValueError, UnsupportedError
from tilec.ir.num_sms import NUM_SMS
from tilec.language.values.kernel.session import importing


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


def scheduled(M, N):
    sms = driver.get_num_sms()

    @T.prim_func
    def main(Y: T.Tensor((M, N), "int32"), S: T.Tensor((1,), "int32")):
        with T.Kernel(sms, threads=32) as pid:
            tiles = T.PersistentTileScheduler(M, N)
            tiles.init(pid)
            while tiles.valid():
                Y[tiles.m_idx, tiles.n_idx] = tiles.m_idx * 100 + tiles.n_idx
                tiles.next_tile()
        with T.Kernel(1, threads=32):
            S[0] = sms

    return main


@pytest.mark.parametrize("sms", [1, 3, 132])
def test_a_build_takes_the_multiprocessors_of_the_launch(sms):
    kernel = build(scheduled, {"M": DYNAMIC, "N": DYNAMIC})
    assert [dim.name for dim in kernel.dims] == ["M", "N", NUM_SMS]
    made, count = np.full((5, 7), -1, np.int32), np.zeros(1, np.int32)
    call(kernel, {"M": 5, "N": 7, NUM_SMS: sms}, made, count)
    np.testing.assert_array_equal(made, np.add.outer(np.arange(5) * 100, np.arange(7)))
    assert count == sms


def on_blocks(blocks):
    @T.prim_func
    def main(X: T.Tensor((8,), "float32")):
        with T.Kernel(blocks) as bx:
            X[bx] = 1.0

    return main


def branching(n):
    return on_blocks(1 if driver.get_num_sms() > 100 else n)


def counting(n):
    return on_blocks(len(range(driver.get_num_sms())))


@pytest.mark.parametrize("entry", [branching, counting])
def test_what_needs_a_number_names_the_multiprocessors_and_a_way_out(entry):
    with pytest.raises(SourceError, match=r"get_num_sms\(\) has no number while a library") as caught:
        build(entry, {"n": 2})
    assert "config key" in caught.value.remedy
    assert caught.value.place.file == __file__


def sized():
    sms = driver.get_num_sms()

    @T.prim_func
    def main(X: T.Tensor((sms,), "float32")):
        with T.Kernel(sms) as bx:
            X[bx] = 1.0

    return main


def test_callers_make_no_tensor_of_a_size_they_do_not_know():
    with pytest.raises(SourceValueError, match="the shape of a parameter of main") as caught:
        build(sized)
    assert "T.alloc_global" in caught.value.remedy


def taken():
    sms = driver.get_num_sms()

    @T.prim_func
    def main(X: T.Tensor((8,), "float32"), _num_sms: T.int32):
        with T.Kernel(sms) as bx:
            X[bx] = _num_sms

    return main


def test_no_parameter_or_dimension_has_its_name():
    with pytest.raises(SourceValueError, match="parameter _num_sms of main has the name"):
        build(taken)
    with pytest.raises(SourceError, match="dimension _num_sms of kernel k has the name"):
        build(sized, {NUM_SMS: 4})


def test_modules_of_a_build_cannot_ask():
    with importing(), pytest.raises(UnsupportedError, match="outside of a kernel") as caught:
        driver.get_num_sms()
    assert "factory" in caught.value.remedy
