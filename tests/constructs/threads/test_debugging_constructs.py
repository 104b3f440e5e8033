"""T.print, T.device_assert and assert: the same lines and the same failures on every road."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from agree import Tolerance, _Case, agree, elaborated

import tilec.language as T
from tilec.backends.base import backend_of
from tilec.backends.pipeline import lower
from tilec.errors import EmulationError, EvalError, UnsupportedError
from tilec.ir import nodes as ir
from tilec.language.frontend.elaborate import elaborate
from tilec.portable.loader import LaunchError
from tilec.targets import parse_target

Tile = T.Tensor((4, 8), "float16")


@T.prim_func
def talks(A: Tile, n: T.int32, B: Tile):
    with T.Kernel(2, threads=32) as bx:
        s = T.alloc_shared((2, 8), "float16")
        f = T.alloc_fragment((2, 8), "float32")
        mine = T.alloc_local((2,), "int8")
        v = T.alloc_var("int32", 3)
        T.copy(A[bx * 2, 0], s)
        T.copy(s, f)
        T.print(msg='{here} "100%"')
        T.print(bx * 2 + n, msg="sum")
        T.print(v)
        T.print(bx > 0)
        T.print(s, "tile")
        T.print(f)
        for i in T.serial(2):
            mine[i] = i - 1
        T.print(mine)
        for i, j in T.Parallel(2, 8):
            if s[i, j] > 14.5:
                T.print(f[i, j] / 8, warp_id=0)
            B[bx * 2 + i, j] = f[i, j]
        T.Assert(n > 0, "n is positive")
        assert bx < n


VALUES = np.arange(32).reshape(4, 8).astype(np.float16)
THREADS = 32


def lines(block: int) -> list[tuple[str, bool]]:
    """What a block prints, and whether every thread of a GPU does."""
    whole = [
        ('{here} "100%"', True),
        (f"sum: bx * 2 + n = {block * 2 + 8}", True),
        ("v = 3", True),
        (f"bx > 0 = {block}", True),
        ("mine[0]: int8 = -1", True),
        ("mine[1]: int8 = 0", True),
    ]
    for name in ("tile: s", "f"):
        dtype = "float16" if name[-1] == "s" else "float32"
        whole += [
            (f"{name}[{i}, {j}]: {dtype} = {VALUES[block * 2 + i, j]:g}", False)
            for i in range(2)
            for j in range(8)
        ]
    rows = VALUES[block * 2 : block * 2 + 2].ravel()
    whole += [(f"f[i, j] / 8.0 = {value / 8:g}", False) for value in rows if value > 14.5]
    return [(f"block ({block}) {text}", often) for text, often in whole]


@pytest.mark.parametrize("target", ["cpu", "sm_80", "sm_90a"])
def test_lines(target, capfd):
    agree(talks, VALUES, 8, expected=VALUES, targets=[target])
    found = Counter(capfd.readouterr().err.splitlines())
    oracle = Counter({text: 1 for block in (0, 1) for text, _ in lines(block)})
    said = found - oracle  # the interpreter's are all there, once
    assert sum(said.values()) == sum(found.values()) - sum(oracle.values())
    if target == "cpu":
        assert said == oracle
        return
    plain = Counter(re.sub(r"^thread \(\d+, 0, 0\) ", "", line) for line in said.elements())
    assert plain == Counter(
        {text: THREADS if often else 1 for block in (0, 1) for text, often in lines(block)}
    )
    assert max(said.values()) == 1


@T.prim_func
def threads(A: T.Tensor((32,), "int32"), B: T.Tensor((32,), "int32")):
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding()
        s = T.alloc_shared((32,), "int32")
        s[tx] = A[tx]
        T.sync_threads()
        if tx < 2:
            T.print(s[31 - tx], "swapped")
        T.device_assert(s[31 - tx] >= 0, "positive")
        B[tx] = s[31 - tx]
        if tx == 0:
            T.print(s)
            T.print(msg="end")


@pytest.mark.parametrize("target", ["cpu", "sm_80", "sm_90a"])
def test_lines_of_threads(target, capfd):
    agree(threads, np.arange(32, dtype=np.int32), expected=np.arange(31, -1, -1), targets=[target])
    lines = capfd.readouterr().err.splitlines()
    found = Counter(re.sub(r"^thread \(\d+, 0, 0\) ", "", line) for line in lines)
    expected = [f"s[{i}]: int32 = {i}" for i in range(32)] + ["end"]
    expected += ["swapped: s[31 - tx] = 31", "swapped: s[31 - tx] = 30"]
    assert found == {f"block (0) {text}": 2 for text in expected}  # the interpreter and the target


@T.prim_func
def checks(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
    with T.Kernel(4, threads=32) as bx:
        for i in T.Parallel(16):
            T.device_assert(A[bx * 16 + i] < 50, 'A is "small", {i}')
            B[bx * 16 + i] = A[bx * 16 + i]


def case(values: np.ndarray) -> _Case:
    return _Case(elaborated(checks, (values,), None, {}, {}), (values,), Tolerance(0.0, 0.0))


def test_checks_that_hold_change_nothing():
    values = np.arange(64).astype(np.float32) / 2
    agree(checks, values, expected=values)


def test_a_check_that_fails(capfd):
    wrong = case(np.arange(64).astype(np.float32))
    text = r'test_debugging_constructs\.py:\d+: assertion failed: A is "small", \{i\}'
    with pytest.raises(EvalError, match=text) as caught:
        wrong.interpreted()
    assert "A[" in caught.value.why
    assert caught.value.place.excerpt()[0].endswith(
        """T.device_assert(A[bx * 16 + i] < 50, 'A is "small", {i}')"""
    )
    with pytest.raises(LaunchError, match=text) as status:
        wrong.compiled()
    assert (status.value.status, status.value.name) == (61, "TILEC_ERR_ASSERT")
    for target in ("sm_80", "sm_90a"):
        with pytest.raises(EmulationError, match="a thread traps: .*" + text):
            wrong.emulated(target)
    assert "assertion failed" in capfd.readouterr().err  # printf of the emulated device


def built(kernel: object, **config: object) -> set[type]:
    """The statements of a kernel that is built ahead of time."""
    made = elaborate(kernel, name="k", dims={}, args={}, config=config)
    return {type(stmt) for stmt in ir.walk(made.body)} & {ir.Check, ir.Print, ir.Parallel, ir.For}


def test_release_builds_leave_them_out():
    assert built(talks) == {ir.Parallel, ir.For}
    assert built(talks, debug=False) == {ir.Parallel, ir.For}
    assert built(talks, debug=True) == {ir.Parallel, ir.For, ir.Check, ir.Print}
    assert built(checks) == {ir.Parallel}


@pytest.mark.parametrize(("target", "gpus"), [("gfx942", "AMD"), ("metal3", "Apple")])
def test_gpus_that_write_nothing_refuse_them(target, gpus):
    @T.prim_func
    def prints(A: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32):
            A[0] = 1
            T.print(msg="here")

    @T.prim_func
    def checks(A: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(32):
                T.device_assert(A[i] > 0)
                A[i] = 2

    made_for = parse_target(target)
    for kernel, name in ((prints, "T.print"), (checks, "T.device_assert")):
        made = elaborated(kernel, (), {}, {}, {})
        with pytest.raises(UnsupportedError, match=f"{name} on an {gpus} GPU") as caught:
            backend_of(made_for).lower_kernel(lower(made, made_for), made_for)
        assert str(caught.value.place).count(f"{Path(__file__).name}:") == 1


def test_what_is_known_while_building():
    @T.prim_func
    def always(B: T.Tensor((4,), "int32")):
        with T.Kernel(4) as bx:
            assert bx >= 0, "never negative"
            T.device_assert(4 > 3)
            B[bx] = 1

    @T.prim_func
    def never(B: T.Tensor((4,), "int32")):
        with T.Kernel(4) as bx:
            T.device_assert(bx > 8, "eight")

    @T.prim_func
    def python(B: T.Tensor((4,), "int32")):
        with T.Kernel(4):
            assert len(B.shape) == 2, f"rank is {len(B.shape)}"

    assert built(always, debug=True) == set()
    with pytest.raises(AssertionError, match="assertion failed: eight"):
        built(never)
    with pytest.raises(AssertionError, match="rank is 1"):
        built(python)


@pytest.mark.parametrize("what", ["nothing", "text", "region"])
def test_what_cannot_be_printed(what):
    @T.prim_func
    def main(B: T.Tensor((4,), "int32")):
        with T.Kernel(4):
            T.print(*{"nothing": (), "text": ("words",), "region": (B[0:2],)}[what])

    with pytest.raises(ValueError, match=r"T\.print does not take"):
        built(main)
