"""Functions of four bits, looked up by the lanes of AVX-512: the same bits as without; elements of memory at
four bits, by those of AVX2, too."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import Library

from tilec.backends.cpu.codegen.objects import tir_text
from tilec.backends.cpu.emit.vectors import small_tables
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target, runs_here

#: What becomes of the bytes of X, beside a scale of the row and one of each lane.
KERNEL = """
kernel("k")
X = tensor({dtype}, (8, 64), ("8", "64"), access="in")
row = tensor(float32, (8,), ("8",), access="in")
own = tensor(float32, (64,), ("64",), access="in")
pairs = tensor(float32, (2, 16), ("2", "16"), access="in")
Y = tensor(float32, (8, 64), ("8", "64"), access="out")
with launch(8, threads=(64, 1, 1)) as (b,):
    for i in parallel(64):
        Y[b, i] = {value}
"""
LOW, HIGH = "(cast(int32, X[b, i]) & 15)", "(cast(int32, X[b, i]) >> 4)"
SHAPES = {
    "low": ("uint8", f"cast(float32, {LOW} - 8)"),
    "high": ("uint8", f"cast(float32, {HIGH} - 8)"),
    "masked_high": ("int8", "cast(float32, ((cast(int32, X[b, i]) >> 4) & 15) - 8)"),
    "scaled": ("uint8", f"cast(float32, {LOW} - 8) * row[b]"),
    "shifted": ("uint8", f"cast(float32, {HIGH}) * row[b] - 3.0 * row[b]"),
    "own_scale": ("uint8", f"cast(float32, {LOW} - 8) * own[i]"),
    "chosen": ("uint8", f"cast(float32, if_then_else(b < 4, {LOW}, {HIGH}) - 8)"),
    "rounded": ("uint8", f"cast(float32, cast(bfloat16, cast(float32, {LOW}) * row[b])) * row[b]"),
}
#: What memory has at four bits.
ELEMENTS = {
    "element": ("uint8", f"own[{LOW}]"),
    "scaled element": ("int8", "own[(cast(int32, X[b, i]) >> 4) & 15] * row[b]"),
    "element of a row": ("uint8", f"pairs[b % 2, {HIGH}] - 1.0"),
}
#: Five bits, two fields, and what a look-up does not shorten.
OTHERS = {
    "five_bits": ("uint8", "cast(float32, (cast(int32, X[b, i]) & 31) - 8)"),
    "two_fields": ("uint8", f"cast(float32, {LOW} - {HIGH})"),
    "one_step": ("uint8", f"cast(float32, {HIGH})"),
    "place": ("uint8", "cast(float32, (i & 15) - 8) + own[i]"),
    "short table": ("uint8", f"row[{LOW}]"),
    "table of each lane": ("uint8", f"pairs[i % 2, {LOW}]"),
    "far elements": ("uint8", f"own[{LOW} + 16]"),
    "fused": ("uint8", f"cast(float32, {HIGH}) * row[b] + own[i]"),
}


def text(form: tuple[str, str]) -> str:
    dtype, value = form
    return KERNEL.format(dtype=dtype, value=value)


def looks_up(form: tuple[str, str], target: str = "x86-64-v4") -> bool:
    wanted = parse_target(target)
    lowered = to_tir(lower(parse_kernel(text(form)), wanted), wanted)
    made = tir_text(lowered, wanted, "k")
    return "permvar.sf.512" in made or "avx2.permps" in made


@pytest.mark.parametrize("name", [*SHAPES, *ELEMENTS])
def test_functions_of_four_bits_are_looked_up(name: str) -> None:
    assert looks_up({**SHAPES, **ELEMENTS}[name])


@pytest.mark.parametrize("name", ELEMENTS)
def test_avx2_looks_elements_up(name: str) -> None:
    assert looks_up(ELEMENTS[name], "x86-64-v3")


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_elements_are_those_of_the_table(target: str) -> None:
    """The same bits on every level: every byte is among them, and so are an infinity, a NaN and a zero with
    a sign."""
    rng = np.random.default_rng(0)
    x = np.tile(np.arange(256, dtype=np.uint8), 2).reshape(8, 64)
    row, own = (rng.standard_normal(size).astype(np.float32) for size in (8, 64))
    own[[1, 5, 9]], pairs = [np.inf, np.nan, -0.0], rng.standard_normal((2, 16)).astype(np.float32)
    expected = {
        "element": own[x & 15],
        "scaled element": own[x >> 4] * row[:, None],
        "element of a row": pairs[np.arange(8)[:, None] % 2, x >> 4] - np.float32(1),
    }
    library = Library({name.replace(" ", "_"): text(form) for name, form in ELEMENTS.items()}, target)
    for name, (dtype, _) in ELEMENTS.items():
        y = np.zeros((8, 64), np.float32)
        library.run(name.replace(" ", "_"), [x.view(dtype), row, own, pairs, y], {})
        np.testing.assert_array_equal(y, expected[name], err_msg=name)


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_computed(name: str) -> None:
    assert not looks_up(OTHERS[name])


@pytest.mark.parametrize("target", ["x86-64-v3", "aarch64"])
def test_targets_without_the_instruction_compute(target: str) -> None:
    assert not looks_up(SHAPES["scaled"], target)


@pytest.mark.parametrize("name", [*SHAPES, *OTHERS])
def test_results_are_the_same_bits(name: str) -> None:
    """As those of AVX2, which looks none of these up; every byte is among them."""
    if not runs_here(parse_target("x86-64-v4")):
        pytest.skip("this machine has no AVX-512")
    dtype, _ = form = {**SHAPES, **OTHERS}[name]
    rng = np.random.default_rng(0)
    x = np.tile(np.arange(256, dtype=np.uint8), 2).reshape(8, 64).view(dtype)
    row, own = (rng.standard_normal(size).astype(np.float32) for size in (8, 64))
    pairs, results = rng.standard_normal((2, 16)).astype(np.float32), []
    for level in ("x86-64-v3", "x86-64-v4"):
        y = np.full((8, 64), np.nan, np.float32)
        Library({"k": text(form)}, level).run("k", [x, row, own, pairs, y], {})
        results.append(y.view(np.uint32))
    assert np.isfinite(results[0].view(np.float32)).all()
    np.testing.assert_array_equal(*results)


def test_long_sums_take_time_in_proportion_to_their_length(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    ask = small_tables._varies
    monkeypatch.setattr(small_tables, "_varies", lambda *args: asked.append(args) or ask(*args))
    counts = []
    for terms in (20, 40):
        asked.clear()
        assert not looks_up(("float32", " + ".join(["own[i]"] * terms)))
        counts.append(len(asked))
    assert 0 < counts[1] < 2.5 * counts[0]
