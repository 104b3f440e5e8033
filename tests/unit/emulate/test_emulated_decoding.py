"""What stands between the products of a step that decodes, in the schedules of the engine's manifest."""

from __future__ import annotations

from pathlib import Path

import pytest
from emulated import Beside, lowered
from shipped import known_authors, variants

from tilec.build.frontend import elaborate_variant
from tilec.ir.roads import losses

MANIFEST = Path(__file__).parents[3] / "examples" / "cpp" / "llama" / "llama.toml"


@pytest.mark.parametrize(
    ("name", "dims"),
    [("embedding_bfloat16", {"tokens": 2, "V": 5, "D": 2064})],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_small_launches_have_no_slow_access(name: str, dims: dict[str, int]) -> None:
    """Numbers as the reference has them, and every access of a row by vectors."""
    variant = variants(MANIFEST, name, "sm_90a")[0]
    kernel = elaborate_variant(variant).kernel
    beside = Beside(kernel, variant.target, known_authors(MANIFEST)[name])
    assert beside.run(dims) == []
    made = lowered(kernel, "sm_90a")
    assert [str(road) for launch in made.launches for road in losses(launch.roads)] == []
