"""The kernels of streams.toml against their NumPy references, each at the end of a tile."""

from __future__ import annotations

from pathlib import Path

import pytest
from families import Suite

from tilec.portable.loader import Library
from tilec.targets import parse_target

MANIFEST = Path(__file__).with_name("streams.toml")
SIZES = {
    "m": 20,
    "n": 1032,
    "added_float16": {"n": 5003},
    "added_float32": {"n": 5003},
    "summed": {"n": 9001},
    "histogram": {"n": 9001},
    "transposed": {"m": 136, "n": 72},
    "column_sums": {"m": 140, "n": 136},
    "layer_norm": {"m": 2},
    "quantised_rows": {"m": 2},
    "matrix_vector": {"n": 6, "k": 1032},
    "heads_first": {"b": 2, "s": 9},
    "group_norm": {"b": 1, "pixels": 24},
    "h": 3,
    "w": 17,
    "small_products": {"b": 5},
}
SUITE = Suite(MANIFEST, SIZES, default=2)
SM90A = parse_target("sm_90a")


@pytest.fixture(scope="module")
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Library:
    """Those for a CPU that tests of this run ask for."""
    asking = (item for item in request.session.items if isinstance(item, pytest.Function))
    names = [item.callspec.params["name"] for item in asking
             if item.path == request.path and "library" in item.fixturenames]  # fmt: skip
    return SUITE.library(tmp_path_factory.mktemp("streams"), names)


@pytest.mark.parametrize("name", SUITE.plans)
def test_a_library_agrees_with_the_reference(name: str, library: Library) -> None:
    case = SUITE.case(name)
    case.check(case.called_in(library))


@pytest.mark.parametrize("name", SUITE.plans)
def test_they_move_vectors_on_a_gpu(name: str) -> None:
    """What is lost is told by elements: where a byte is counted, and columns of a tile that is transposed."""
    lost = [line for line in SUITE.case(name).check_lowered(SM90A).splitlines() if "lost" in line]
    assert bool(lost) == (name in ("histogram", "transposed")), lost


@pytest.mark.emulate
@pytest.mark.parametrize("name", SUITE.plans)
def test_emulated_gpus_agree_with_the_reference(name: str) -> None:
    SUITE.case(name).check_emulated(SM90A)
