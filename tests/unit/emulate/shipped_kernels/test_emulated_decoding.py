"""What stands between the products of a step that decodes, in the schedules of the engine's manifest."""

from __future__ import annotations

from pathlib import Path

import pytest
from emulated import Beside, lowered
from shipped import known_authors, variants

from tilec.build.elaborated.frontend import elaborate_variant
from tilec.ir.roads import losses
from tilec.trials.oracle import Author

MANIFEST = Path(__file__).parents[4] / "examples" / "cpp" / "llama" / "llama.toml"
HEADS = {"tokens": 3, "H": 2, "Hkv": 1, "D": 64, "S": 9, "pages": 2, "page": 16}

CASES = [
    ("embedding_bfloat16", {"tokens": 2, "V": 5, "D": 2064}),
    ("round_rows", {"M": 2, "K": 4112}),
    ("add_rmsnorm_rounded_e5_bfloat16", {"M": 2, "N": 4112, "ldx": 4112}),
    ("silu_mul_rounded_bfloat16", {"M": 1, "N": 16400, "ldg": 32800, "ldu": 32800}),
    ("rotary_to_cache_bfloat16", HEADS),
    ("rotary_to_cache_normed_bfloat16", HEADS),
]


@pytest.mark.parametrize(("name", "dims"), CASES, ids=[name for name, _ in CASES])
def test_one_launch_moves_vectors_alone(name: str, dims: dict[str, int]) -> None:
    """Numbers as the reference has them, in one launch that misses no faster road."""
    variant = variants(MANIFEST, name, "sm_90a")[0]
    kernel = elaborate_variant(variant).kernel
    beside = Beside(kernel, variant.target, known_authors(MANIFEST).get(name, Author()))
    assert beside.run(dims) == []
    (launch,) = lowered(kernel, "sm_90a").launches
    assert [str(road) for road in losses(launch.roads)] == []
