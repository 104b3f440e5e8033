"""Blocks of 4-bit weights: what they stand for, beside the package that GGUF files are written with."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples" / "kernels"))
import gguf_blocks

#: Dims of no kernel: rows of two blocks of 256 weights.
DIMS = {"M": 1, "N": 3, "K": 512}


def _block_by_hand() -> np.ndarray:
    """A block of ``q4_k``: steps 7, 15, ... 63, minima 60, 59, ... 53, weights their places modulo 16."""
    steps, minima = 8 * np.arange(1, 9) - 1, 60 - np.arange(8)
    block = np.zeros(144, np.uint8)
    block[:4] = np.array([0.5, 0.25], np.float16).view(np.uint8)
    for j in range(4):
        block[4 + j] = steps[j] | (steps[j + 4] >> 4) << 6
        block[8 + j] = minima[j] | (minima[j + 4] >> 4) << 6
        block[12 + j] = steps[j + 4] & 15 | (minima[j + 4] & 15) << 4
    numbers = np.arange(256) % 16
    for pair in range(4):
        low, high = numbers[64 * pair : 64 * pair + 32], numbers[64 * pair + 32 : 64 * pair + 64]
        block[16 + 32 * pair : 48 + 32 * pair] = low | high << 4
    return block


def test_q4_k_by_hand() -> None:
    steps, minima = 8 * np.arange(1, 9) - 1, 60 - np.arange(8)
    expected = 0.5 * np.repeat(steps, 32) * (np.arange(256) % 16) - 0.25 * np.repeat(minima, 32)
    np.testing.assert_allclose(gguf_blocks.weights_q4_k(_block_by_hand()[None, None])[0], expected, rtol=1e-6)


def test_q4_0_by_hand() -> None:
    block = np.zeros(18, np.uint8)
    block[:2] = np.array([2.0], np.float16).view(np.uint8)
    block[2:] = np.arange(16) | (15 - np.arange(16)) << 4
    expected = 2.0 * np.concatenate([np.arange(16) - 8, 7 - np.arange(16)])
    np.testing.assert_array_equal(gguf_blocks.weights_q4_0(block[None, None])[0], expected)


@pytest.mark.parametrize("form", gguf_blocks.SIZES)
def test_the_package_reads_the_same_weights(form: str) -> None:
    gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")
    _, blocks = getattr(gguf_blocks, f"linear_{form}_inputs")(DIMS, np.random.default_rng(0))
    kind = gguf.GGMLQuantizationType[form.upper()]
    expected = gguf.quants.dequantize(blocks.reshape(len(blocks), -1), kind)
    found = getattr(gguf_blocks, f"weights_{form}")(blocks)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)
