"""Errors that only a target can tell: the author's line, carets, the tiles at hand, a remedy."""

from __future__ import annotations

import pytest

import tilec.language as T
from tilec.backends.cuda.codegen.images import check_limits
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.errors import TilecError
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import parse_target

Matrix = T.Tensor((256, 256), "float16")


@T.prim_func
def shared(A: Matrix):
    with T.Kernel(1, threads=128):
        s = T.alloc_shared((256, 256), "float32")
        t = T.alloc_shared((256, 256), "float32")
        T.copy(A, s)
        T.copy(s, t)
        T.copy(t, A)
        T.copy(s, A)


@T.prim_func
def sums(A: Matrix, C: T.Tensor((512, 512), "float32")):
    with T.Kernel(1, threads=128):
        a, b = T.alloc_shared((512, 32), "float16"), T.alloc_shared((32, 512), "float16")
        c = T.alloc_fragment((512, 512), "float32")
        T.copy(A[0, 0], a)
        T.copy(A[0, 0], b)
        T.clear(c)
        T.gemm(a, b, c)
        T.copy(c, C)


@T.prim_func
def threads(A: Matrix):
    with T.Kernel(1, threads=2048):
        for i in T.Parallel(64):
            A[i, i] = 1


CASES = [
    (shared, ("sm_80", "sm_90a"), "with T.Kernel(1, threads=128):", "shared tiles take", ""),
    (sums, ("sm_80", "sm_90a"), "T.gemm(a, b, c)", "registers", "c: float32[512, 512] in local.fragment"),
    (threads, ("sm_80",), "with T.Kernel(1, threads=2048):", "2048 threads in a block", ""),
]


@pytest.mark.parametrize(
    ("kernel", "target", "line", "what", "given"),
    [(kernel, target, *rest) for kernel, targets, *rest in CASES for target in targets],
)
def test_errors_of_targets(kernel, target, line, what, given):
    made, named = elaborate(kernel, name="k", dims={}, args={}, config={}), parse_target(target)
    with pytest.raises(TilecError, match=what) as caught:
        check_limits(to_tir(lower(made, named), named), named)
    error = caught.value
    text, carets = error.place.excerpt()
    assert error.place.file == __file__
    assert text.endswith(f"| {line}")
    assert carets.count("^") == len(line) if line.startswith("T.") else "^" in carets
    assert given in error.given
    assert error.remedy


def test_a_compiler_that_fails_names_the_launch():
    from tilec.codegen.failures import failure

    named = parse_target("sm_80")
    made = elaborate(sums, name="k", dims={}, args={}, config={})
    error = failure(to_tir(lower(made, parse_target("x86-64-v3")), parse_target("x86-64-v3")), named, "words")
    assert error.place.excerpt()[0].endswith("| with T.Kernel(1, threads=128):")
