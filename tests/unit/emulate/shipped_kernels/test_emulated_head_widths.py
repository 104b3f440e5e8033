"""Attention of heads whose width is a run-time value, as it ships, on the emulator."""

from __future__ import annotations

import pytest
from emulated import Beside
from shipped import MANIFESTS, known_authors, variants

from tilec.build.elaborated.frontend import elaborate_variant

pytestmark = pytest.mark.slow

KERNELS = ("attention_float32", "attention_causal_float16", "attention_dense_bfloat16")
#: Guard of D: widths of heads that its tiles hold.
WIDTHS = {"%8,<=64": (8, 40), "%8,<=128": (32, 80, 112), "%8,129..256": (160, 256)}
#: Kernels with tiles of such widths; float32 has none of 64 columns.
SERVED = [
    (name, guard) for name in KERNELS for guard in WIDTHS if guard != "%8,<=64" or "float32" not in name
]


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(("name", "guard"), SERVED)
def test_heads_of_any_width(name: str, target: str, guard: str) -> None:
    [shipped, *_] = MANIFESTS
    served = [variant for variant in variants(shipped, name, target) if str(variant.dims["D"]) == guard]
    assert served
    for variant in served:
        beside = Beside(elaborate_variant(variant).kernel, variant.target, known_authors(shipped)[name])
        queries = min(70, variant.dims["Sq"].max or 70)
        for width in WIDTHS[guard]:
            dims = {"B": 1, "Sq": queries, "Sk": 137, "H": 2, "Hkv": 1, "D": width}
            strides = {"q_row": 2 * width, "kv_row": width + 8}
            dims |= {**strides, "q_batch": queries * strides["q_row"], "kv_batch": 137 * strides["kv_row"]}
            assert beside.run(dims) == [], (variant.title, dims)
