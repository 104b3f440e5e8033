"""Dims, guarded arrays and comparisons."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import ml_dtypes
import numpy as np
import pytest

from tilec.errors import LibraryError
from tilec.ir.guards import Guard
from tilec.package.model import ParamRecord, evaluate
from tilec.portable.guarded import Guarded
from tilec.trials.arrays import random_values
from tilec.trials.comparison import Tolerance, compare, default_tolerance
from tilec.trials.facts import KernelFacts, VariantFacts, read_kernel
from tilec.trials.oracle import Author, Oracle
from tilec.trials.shapes import candidates, cases, fit, refused


def _tensor(name, *extents, dtype="float32", access="in", strides=None):
    return ParamRecord(name, "tensor", dtype, access, extents=extents, strides=strides)


def _kernel(*params, dims=("M", "N"), guards=None):
    variant = VariantFacts(0, "x86-64-v2", guards or {}, frozenset([32]), "")
    return KernelFacts("k", params, dims, (variant,), {}), variant


@pytest.mark.parametrize(
    ("guard", "value", "expected"),
    [
        (Guard(), 5, 5),
        (Guard(div=16), 5, 16),
        (Guard(div=16, min=20), 1, 32),
        (Guard(max=64), 100, 64),
        (Guard(div=16, max=70), 100, 64),
        (Guard(eq=3), 100, 3),
    ],
)
def test_fit_gives_the_nearest_admitted_value(guard, value, expected):
    assert fit(guard, value) == expected
    assert guard.admits(fit(guard, value))


def test_candidates_sit_at_edges_of_guards_and_tiles():
    assert candidates(Guard(eq=4096), []) == [4096]
    assert {31, 32, 33, 67} <= set(candidates(Guard(), [32, 128]))
    assert {1, 63, 64} <= set(candidates(Guard(min=1, max=64), [32]))
    assert candidates(Guard(min=1000), [])[0] == 1000
    assert max(candidates(Guard(), [1024])) <= 200 < 1025 <= max(candidates(Guard(), [1024], 5000))
    bounded = Guard(div=16, min=32, max=128)
    assert all(bounded.admits(value) for value in candidates(bounded, [32]))


def test_cases_are_small_distinct_and_repeatable():
    kernel, variant = _kernel(_tensor("A", "M", "N"), guards={"N": Guard(div=8)})
    first, second = (list(islice(cases(kernel, variant, 1), 12)) for _ in range(2))
    assert first == second
    assert first[0] == {"M": 1, "N": 8}
    assert all(dims["N"] % 8 == 0 for dims in first)
    assert len({tuple(dims.items()) for dims in first}) == 12


def test_strides_keep_elements_apart():
    tensor = _tensor("A", "M", "N", strides=("ld", "1"))
    kernel, variant = _kernel(tensor, dims=("M", "N", "ld"), guards={"ld": Guard(div=4)})
    found = list(islice(cases(kernel, variant, 0), 12))
    assert all(dims["ld"] % 4 == 0 and (dims["ld"] >= dims["N"] or dims["M"] == 1) for dims in found)
    assert any(dims["ld"] >= dims["N"] + 4 for dims in found)


def test_strides_of_several_axes_clear_the_axes_behind_them():
    tensor = _tensor("K", "P", "R", "H", "8", strides=("page", "row", "head", "1"))
    names = ("P", "R", "H", "page", "row", "head")
    kernel, variant = _kernel(tensor, dims=names, guards={name: Guard(div=8) for name in names[3:]})
    found = list(islice(cases(kernel, variant, 0), 12))
    assert len(found) == 12
    assert any(min(dims["P"], dims["R"], dims["H"]) > 1 for dims in found)
    assert all(dims["row"] >= dims["head"] * dims["H"] for dims in found)
    assert all(dims["page"] >= dims["row"] * dims["R"] for dims in found)


def test_refused_dims_lie_just_outside():
    kernel, variant = _kernel(
        _tensor("A", "M", "N"), guards={"M": Guard(min=8, max=64, div=8), "N": Guard(eq=3)}
    )
    found = refused(kernel, variant, {"M": 16, "N": 3})
    assert {dims["M"] for dims in found if dims["N"] == 3} == {9, 72}
    assert {dims["N"] for dims in found if dims["M"] == 16} == {2, 4}


def test_tiles_come_from_config_and_grids():
    launch = {"grid": ["(N + 1023) // 1024", "max(1, M // 8)"]}
    variant = {"id": 0, "target": "t", "guards": {}, "launches": [launch], "config": {"bM": 64, "flag": True}}
    facts = read_kernel({"name": "k", "params": [], "dims": [], "variants": [variant]}, ["text"])
    assert facts.variants[0].tiles == {8, 64, 1024}
    assert facts.variants[0].blocks({"N": 2049, "M": 80}) == 30
    assert facts.variants[0].blocks({"M": 80}) == 10


def test_sizes_are_python_over_dims():
    assert evaluate("K // 2 + min(M, 3)", {"K": 9, "M": 5}) == 7
    with pytest.raises(LibraryError, match="Q"):
        evaluate("Q + 1", {"K": 9})


def test_guarded_arrays_notice_writes_around_them():
    each = Guarded((3, 4), (6, 1), np.dtype(np.float32), 0xFF)
    each.array[...] = 1
    assert each.intact()
    flat = np.lib.stride_tricks.as_strided(each.array, (18,), (4,))
    assert np.isnan(flat[4])
    flat[4] = 0
    assert not each.intact()


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), ()])
def test_guarded_arrays_may_be_empty_or_scalar(shape):
    each = Guarded(shape, tuple(1 for _ in shape), np.dtype(ml_dtypes.bfloat16), 0xFF)
    assert each.array.shape == shape
    assert each.intact()


def test_random_values_suit_their_types():
    params = (
        _tensor("x", "M", dtype="bfloat16"),
        _tensor("ids", "M", dtype="int32"),
        _tensor("q", "M", dtype="int8"),
        _tensor("mask", "M", dtype="bool", access="inout"),
        _tensor("y", "M", access="out"),
        ParamRecord("alpha", "scalar", "float32"),
        ParamRecord("beta", "scalar", "float32", default=2.5),
        ParamRecord("M", "scalar", "int32"),
    )
    kernel, _ = _kernel(*params, dims=("M",))
    values = random_values(kernel, {"M": 100}, np.random.default_rng(0))
    assert set(values) == {"x", "ids", "q", "mask", "alpha", "beta", "M"}
    assert values["x"].dtype == ml_dtypes.bfloat16
    assert 0 <= values["ids"].min() < 50 < values["ids"].max() <= 100
    assert values["q"].min() < -100
    assert (values["beta"], values["M"]) == (2.5, 100)


def test_tolerance_follows_the_coarsest_type():
    assert default_tolerance(["float32", "bfloat16", "int32"]).rtol == 3e-2
    assert default_tolerance(["float32"]).rtol == 1e-4
    assert default_tolerance(["int8", "int32"]) == Tolerance(0, 0)


def test_long_sums_of_float32_are_further_off():
    """Along axes that no output has: roundings of a sum grow with its terms, whatever it comes to."""
    product = (_tensor("A", "M", "K"), _tensor("B", "K", "N"), _tensor("C", "M", "N", access="out"))
    kernel, variant = _kernel(*product, dims=("M", "K", "N"))
    long, short = {"M": 3, "K": 4096, "N": 4096}, {"M": 4096, "K": 100, "N": 4096}
    assert (kernel.terms(long), kernel.terms(short)) == (4096, 100)
    oracle = Oracle(kernel, Author())
    assert oracle.tolerance(variant, long) == Tolerance(1e-4, 8e-4)
    assert oracle.tolerance(variant, short) == oracle.tolerance(variant) == Tolerance(1e-4, 1e-4)
    assert Oracle(kernel, Author(tolerance={"atol": 1e-5})).tolerance(variant, long).atol == 1e-5
    assert default_tolerance(["int32"], 4096) == Tolerance(0, 0)
    assert default_tolerance(["bfloat16"], 4096) == default_tolerance(["bfloat16"])


PRODUCT = """
kernel("k")
C = tensor(float32, (16, 16), ("16", "16"), access="out")
with launch(1, threads=(32, 1, 1)) as (bx,):
    a = alloc(float16, (16, 16), "shared.dyn")
    c = alloc(float32, (16, 16), "local.fragment")
    gemm(a[0:+16, 0:+16], a[0:+16, 0:+16], c[0:+16, 0:+16], clear=True)
"""


def test_sums_of_scaled_integers_are_as_far_off_as_their_terms():
    """Products on CPUs do not round each weight to 16 bits, which the interpreter does."""
    product = (_tensor("W", "N", "K"), _tensor("C", "M", "N", access="out"))
    integers = (replace(product[0], dtype="int8"), replace(product[1], dtype="float16"))
    kernel, variant = _kernel(*integers, dims=("M", "K", "N"))
    scaled = replace(variant, target="x86-64-v3", ir_text=PRODUCT)
    of_terms = [
        Oracle(kernel, Author()).tolerance(each).of_terms
        for each in (scaled, replace(scaled, target="sm_80"), replace(scaled, ir_text="copy(A, C)"))
    ]
    assert of_terms == [True, False, False]
    expected, got = np.array([100.0, -100.0, 0.1]), np.array([100.0, -100.0, 0.3])
    assert not compare("C", got, expected, Tolerance(5e-3, 5e-3, of_terms=True)).text
    assert compare("C", got, expected, Tolerance(5e-3, 5e-3)).text
    assert compare("C", got + 1, expected, Tolerance(5e-3, 5e-3, of_terms=True)).text


def test_tolerances_of_the_manifest_replace_the_defaults_one_by_one():
    kernel, variant = _kernel(_tensor("A", "M", "N"))
    built = replace(kernel, tolerance={"rtol": 0.1, "max_mismatch": 0.01})
    assert Oracle(built, Author()).tolerance(variant) == Tolerance(0.1, 1e-4, 0.01)
    assert Oracle(built, Author(tolerance={"rtol": 0.2})).tolerance(variant) == Tolerance(0.2, 1e-4, 0.01)
    own = replace(variant, tolerance={"rtol": 0.3})
    assert Oracle(built, Author(tolerance={"rtol": 0.2})).tolerance(own) == Tolerance(0.3, 1e-4, 0.01)


@pytest.mark.parametrize(("target", "rtol"), [("x86-64-v3", 1e-4), ("sm_80", 2e-2), ("compute_90", 2e-2)])
def test_float32_products_of_tensor_cores_are_tf32(target: str, rtol: float):
    kernel, variant = _kernel(_tensor("A", "M", "N"))
    product = replace(variant, target=target, ir_text="gemm(a, b, c)")
    assert Oracle(kernel, Author()).tolerance(product).rtol == rtol
    assert Oracle(kernel, Author()).tolerance(replace(product, ir_text="")).rtol == 1e-4


@pytest.mark.parametrize(("sums", "rtol"), [("float16", 3e-2), ("float32", 5e-3)])
def test_products_that_add_up_in_float16_may_be_further_off(sums, rtol):
    text = f"""kernel("kernel")
A = tensor(float16, (16, 16), ("16", "16"), access="in")
C = tensor(float16, (16, 16), ("16", "16"), access="out")
with launch(1, threads=(32, 1, 1)) as (bx,):
    a = alloc(float16, (16, 16), "shared.dyn")
    c = alloc({sums}, (16, 16), "local.fragment")
    copy(A[0:+16, 0:+16], a[0:+16, 0:+16])
    gemm(a[0:+16, 0:+16], a[0:+16, 0:+16], c[0:+16, 0:+16], clear=True)
    copy(c[0:+16, 0:+16], C[0:+16, 0:+16])
"""
    kernel, variant = _kernel(replace(_tensor("A", "M", "N"), dtype="float16"))
    assert Oracle(kernel, Author()).tolerance(replace(variant, ir_text=text)).rtol == rtol


def test_comparison():
    expected = np.float32([1, np.nan, np.inf, 100])
    same = compare("y", expected.copy(), expected, Tolerance(1e-3, 1e-3))
    assert (same.text, same.error) == ("", 0)
    off = compare("y", np.float32([1, 0, np.inf, 101]), expected, Tolerance(1e-3, 1e-3))
    assert off.text == "y: 2 of 4 elements are wrong, first [1]: got 0, expected nan"
    assert off.error == 1
    assert compare("y", np.float32([1, 0, np.inf, 101]), expected, Tolerance(1e-3, 1e-3, 0.5)).text == ""
    missed = compare("y", np.float32([1, np.nan, 3e38, 100]), expected, Tolerance(1e-3, 1e-3))
    assert missed.text.startswith("y: 1 of 4 elements are wrong, first [2]"), "an infinity is near to nothing"
    assert "shape" in compare("y", expected[:2], expected, Tolerance(0, 0)).text


def test_integers_are_exact_unless_floats_round_them():
    got, expected = np.int8([3, 4]), np.int8([3, 5])
    assert compare("y", got, expected, Tolerance(0, 0)).text
    assert not compare("y", got, expected, Tolerance(1e-4, 1e-4)).text
    assert compare("y", np.int8([3, 7]), expected, Tolerance(1e-4, 1e-4)).text
