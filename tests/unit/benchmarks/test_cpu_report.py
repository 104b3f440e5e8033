"""Tables and picture of what the benchmark of CPUs measured."""

from __future__ import annotations

from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks" / "cpu"
PNG = b"\x89PNG"

ROWS = [
    {"group": "products", "kernel": "mm", "shape": [8, 9, 7], "threads": 1, "us": 50.0, "ratio": 2.0,
     "peers": {"torch": 100.0, "numpy": 200.0}},
    {"group": "products", "kernel": "mm", "shape": [8, 9, 7], "threads": 2, "us": 40.0, "ratio": 0.5,
     "peers": {"torch": 20.0}},
    {"group": "ragged", "kernel": "varlen", "shape": [[3, 4], 2], "threads": 1, "us": 400.0, "ratio": 0.5,
     "peers": {"torch": 200.0}},
]  # fmt: skip


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)


def test_a_group_has_its_spread_for_each_number_of_threads() -> None:
    from report import summary

    _, _, products, ragged = summary(ROWS)
    assert products == "| products | 1 | 2.000, 2.000, 2.000 | 0.500, 0.500, 0.500 |"
    assert ragged == "| ragged | 1 | 0.500, 0.500, 0.500 |  |"


def test_a_shape_is_a_line_beside_its_best_peer() -> None:
    from report import table

    _, _, product, ragged = table(ROWS)
    assert product == "| `mm` | 8 x 9 x 7 | 50.0 | 100 (torch) | 2.00 | 40.0 | 20.0 (torch) | 0.50 |"
    assert ragged == "| `varlen` | (3, 4) x 2 | 400 | 200 (torch) | 0.50 |  |  |  |"


def test_the_picture_is_drawn() -> None:
    pytest.importorskip("matplotlib")
    from report import picture

    assert picture(ROWS).startswith(PNG)
