"""Bytes of integers of fewer bits, four to a word on GPUs."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.backends.base import backend_of
from tilec.backends.cuda.emit.loops.quads import Quads
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.targets import parse_target

ROWS, COLUMNS = 32, 128


def unpacking(bits, zero, to="int8", scope="fragment", signed=False, words="uint8"):
    """A matrix of integers of ``bits``, lowest first, less ``zero``, by a tile in ``scope``."""
    count = (8 if words == "uint8" else 32) // bits
    alloc = T.alloc_fragment if scope == "fragment" else T.alloc_shared

    @T.prim_func
    def kernel(B: T.Tensor((ROWS, COLUMNS // count), words), Y: T.Tensor((ROWS, COLUMNS), to)):
        with T.Kernel(1, threads=128):
            b = alloc((ROWS, COLUMNS // count), words)
            d, s = T.alloc_fragment((ROWS, COLUMNS), to), T.alloc_shared((ROWS, COLUMNS), to)
            T.copy(B, b)
            for i, j in T.Parallel(ROWS, COLUMNS):
                field = (b[i, j // count] >> T.cast(j % count * bits, words)) & T.cast(2**bits - 1, words)
                if signed:
                    top = T.reinterpret("int8", T.cast(field, "uint8") << T.uint8(8 - bits))
                    d[i, j] = (top >> T.int8(8 - bits)) - T.int8(zero)
                else:
                    d[i, j] = T.cast(field, to) - T.cast(zero, to)
            T.copy(d, s)
            T.copy(s, Y)

    return kernel


def source(kernel, *inputs):
    chip = parse_target("sm_90a")
    lowered = to_tir(lower(elaborated(kernel, inputs, None, {}, {}), chip), chip)
    return backend_of(chip).text("source", lowered, chip, "k")


def packed(bits, words="uint8"):
    kind = np.dtype(words)
    count = COLUMNS * bits // (8 * kind.itemsize)
    return np.random.default_rng(bits).integers(0, 2 ** (8 * kind.itemsize), (ROWS, count)).astype(kind)


def unpacked(given, bits):
    wide = given.view(np.uint8).reshape(ROWS, -1)
    return np.stack([wide >> place & 2**bits - 1 for place in range(0, 8, bits)], -1).reshape(ROWS, COLUMNS)


@pytest.mark.parametrize("words", ["uint8", "uint32"])
@pytest.mark.parametrize(("bits", "zero"), [(1, 0), (2, 1), (4, 8), (4, -3)])
def test_four_bytes_are_made_together(bits, zero, words):
    kernel, given = unpacking(bits, zero, words=words), packed(bits, words)
    agree(kernel, given, expected=(unpacked(given, bits).astype(np.int32) - zero).astype(np.int8))
    assert "tilec_spread_u" in source(kernel, given)


@pytest.mark.parametrize("bits", [2, 4])
def test_signs_are_the_highest_bits(bits):
    kernel, given = unpacking(bits, 0, signed=True), packed(bits)
    found = unpacked(given, bits).astype(np.int8)
    agree(kernel, given, expected=np.where(found >= 2 ** (bits - 1), found - 2**bits, found).astype(np.int8))
    assert f"tilec_spread_s{bits}" in source(kernel, given)


def test_bytes_without_a_sign_and_tiles_in_shared_memory():
    kernel, given = unpacking(4, 0, to="uint8", scope="shared"), packed(4)
    agree(kernel, given, expected=unpacked(given, 4))
    assert "tilec_spread_u4_0" in source(kernel, given)


def test_other_integers_are_made_one_by_one():
    kernel, given = unpacking(4, 200, to="uint8"), packed(4)
    agree(kernel, given, expected=unpacked(given, 4) - np.uint8(200))
    assert "tilec_spread" not in source(kernel, given)


def test_words_are_made_once(monkeypatch):
    made, word = [], Quads.word

    def noted(self, value, first):
        made.append((str(value), first))
        return word(self, value, first)

    monkeypatch.setattr(Quads, "word", noted)
    assert "tilec_spread" in source(unpacking(4, 8), packed(4))
    assert made
    assert len(made) == len(set(made))
