"""Products of every type, depth and size on the tensor cores of sm_80 and sm_89, beside the interpreter."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from told import losses

from tilec.backends.cuda.nodes import WarpGemm
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.emulate import EmulatedKernel
from tilec.ir.interp import interpreter
from tilec.ir.nodes import walk
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

TEXT = """
kernel("product")
A = tensor({a}, {all_of_a}, {text_a}, access="in")
B = tensor({b}, {all_of_b}, {text_b}, access="in")
C = tensor({c}, ({M}, {N}), ("{M}", "{N}"), access="out")
with launch(1, threads=(64, 1, 1)) as (bx,):
    a = alloc({a}, {rows_a}, "shared.dyn")
    b = alloc({b}, {rows_b}, "shared.dyn")
    c = alloc({c}, ({M}, {N}), "local.fragment")
    copy(A[{all_a}], a[{all_a}])
    copy(B[{all_b}], b[{all_b}])
    fill(c[0:+{M}, 0:+{N}], {one})
    gemm(a[{all_a}], b[{all_b}], c[0:+{M}, 0:+{N}], {flags}clear=False)
    copy(c[0:+{M}, 0:+{N}], C[0:+{M}, 0:+{N}])
"""
E4, E5 = "float8_e4m3fn", "float8_e5m2"
#: Target; M, N, K; types of A, B and C; what a note says ("" for none).
CASES = [
    ("sm_80", (32, 32, 32), (E4, E5, "float32"), "a is converted to float16"),
    ("sm_89", (32, 32, 32), (E4, E5, "float32"), ""),
    ("sm_89", (32, 24, 16), (E4, E4, "float32"), "K = 16 is filled up with zeros to 32"),
    ("sm_80", (32, 32, 8), ("float16", "float16", "float32"), "K = 8 is filled up with zeros to 16"),
    ("sm_80", (1, 32, 16), ("float16", "float16", "float32"), ""),
    ("sm_80", (8, 8, 24), ("bfloat16", "bfloat16", "float32"), "K = 24 is filled up"),
    ("sm_80", (3, 5, 7), ("float16", "float16", "float16"), "K = 7 is filled up"),
    ("sm_80", (16, 32, 12), ("float32", "float32", "float32"), "K = 12 is filled up"),
    ("sm_80", (16, 32, 48), ("uint8", "int8", "int32"), "K = 48 is filled up"),
    ("sm_80", (40, 24, 16), ("float16", E4, "float32"), "b is converted to float16"),
    ("sm_80", (48, 40, 16), ("float16", "bfloat16", "float32"), "without tensor cores: sm_80 has no"),
]


def text(sizes, types, trans_a, trans_b, behind=0) -> str:
    """One product of whole tiles, with so many elements of the tensors ``behind`` them along K."""
    M, N, K = sizes
    a, b = (K, M) if trans_a else (M, K), (N, K) if trans_b else (K, N)
    fields = {"a": types[0], "b": types[1], "c": types[2], "M": M, "N": N}
    for name, shape, depth in (("a", a, 0 if trans_a else 1), ("b", b, 1 if trans_b else 0)):
        whole = tuple(size + (behind if axis == depth else 0) for axis, size in enumerate(shape))
        fields |= {f"rows_{name}": shape, f"all_of_{name}": whole}
        fields |= {f"text_{name}": f'("{whole[0]}", "{whole[1]}")'}
        fields |= {f"all_{name}": f"0:+{shape[0]}, 0:+{shape[1]}"}
    flags = ("trans_a=True, " if trans_a else "") + ("trans_b=True, " if trans_b else "")
    one = "1" if types[2] == "int32" else f"cast({types[2]}, 1.0)"
    return TEXT.format(**fields, flags=flags, one=one)


def numbers(rng, shape, name) -> np.ndarray:
    """Small integers, exact in every type and in sums."""
    small = rng.integers(0 if name == "uint8" else -3, 4, shape)
    return small.astype(getattr(ml_dtypes, name, None) or name)


@pytest.mark.parametrize("transposed", [(False, False), (False, True), (True, False)])
@pytest.mark.parametrize(("target", "sizes", "types", "said"), CASES)
def test_product(target, sizes, types, said, transposed) -> None:
    kernel, (M, N, K) = parse_kernel(text(sizes, types, *transposed)), sizes
    rng = np.random.default_rng(K)
    a = numbers(rng, (K, M) if transposed[0] else (M, K), types[0])
    b = numbers(rng, (N, K) if transposed[1] else (K, N), types[1])
    wanted, found = (np.zeros((M, N), types[2]) for _ in range(2))
    interpreter.run(kernel, [a, b, wanted], {})
    EmulatedKernel(kernel, parse_target(target))([a, b, found], {})
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("target", "sizes", "types", "said"), CASES)
def test_notes_say_what_a_product_costs(target, sizes, types, said) -> None:
    lowered = lower(parse_kernel(text(sizes, types, False, True, behind=1)), parse_target(target))
    found = losses(to_tir(lowered, parse_target(target)).launches[0])
    notes = [line for line in found if line.startswith(("mma.sync", "dot products"))]
    assert any(said in note for note in notes) if said else not notes
    products = [stmt for stmt in walk(lowered.body) if isinstance(stmt, WarpGemm)]
    assert len(products) == (0 if "without" in said else 1)
