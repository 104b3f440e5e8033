"""Norms of rows of any length, as they ship, on the emulator: rows longer than what a block holds."""

from __future__ import annotations

import pytest
from emulated import Beside
from shipped import MANIFESTS, known_authors, variants

from tilec.build.frontend import elaborate_variant

NORMS = ("rmsnorm_bfloat16", "rmsnorm_residual_float32", "layernorm", "layernorm_residual")
#: Guard of N: rows that a block holds, and rows with one and with several parts behind those.
WIDTHS = {"%8": (2880, 4104, 12296), "dynamic": (2881, 4097, 8195)}


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", NORMS)
def test_rows_longer_than_a_block_holds(name: str, target: str) -> None:
    [shipped, *_] = MANIFESTS
    served = {str(variant.dims["N"]): variant for variant in variants(shipped, name, target)}
    for guard, widths in WIDTHS.items():
        variant = served[guard]
        kernel = elaborate_variant(variant).kernel
        beside = Beside(kernel, variant.target, known_authors(shipped)[name])
        for width in widths:
            dims = {"M": 2, "N": width, "ldx": -(-width // 8) * 8}
            assert beside.run(dims) == [], (variant.title, dims)
