"""What the benchmark of random shapes draws, and what it makes of times; no GPU needed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from example_modules import module_of

from tilec.capacity import CAPACITY
from tilec.manifest import load_manifest

ROOT = Path(__file__).resolve().parents[3]
BENCHMARKS = ROOT / "benchmarks" / "gpu"


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> None:
    for each in (BENCHMARKS, BENCHMARKS / "runner", BENCHMARKS / "shapes_runner"):
        monkeypatch.syspath_prepend(each)


def test_a_seed_gives_the_same_shapes_whatever_other_families_have() -> None:
    from draw import COUNTS, drawn

    usual = drawn(7, COUNTS)
    assert usual == drawn(7, COUNTS) != drawn(8, COUNTS)
    assert len(usual) == sum(COUNTS.values())
    assert drawn(7, {"rows": 3}) == [each for each in usual if each.family == "rows"][:3]


def test_shapes_stay_within_a_gpu() -> None:
    from draw import MOST_BYTES, MOST_OPERATIONS, drawn

    for each in drawn(0, {"products": 300, "quantised": 300}):
        m, n, k = (each.dims[name] for name in "MNK")
        assert 1 <= m <= 16384
        assert all(128 <= each <= 32768 for each in (n, k))
        assert 2 * m * n * k <= MOST_OPERATIONS
        assert 2 * (m * k + n * k) <= MOST_BYTES
    assert any(each.dims["N"] % 8 for each in drawn(0, {"products": 60}))


def test_every_kernel_that_is_drawn_ships() -> None:
    from random_shapes import kernels

    shipped = {plan.name for plan in load_manifest(ROOT / "manifests" / "llm.toml").kernels}
    assert set(kernels()) <= shipped


def test_what_a_folder_has_of_tilec_loads_there(tmp_path: Path) -> None:
    from bundle import SHARED, copy_shared

    copy_shared(tmp_path / "tilec")
    names = [file.removesuffix(".py").replace("/", ".") for file in SHARED]
    text = "\n".join(
        [f"import sys; sys.path.insert(0, {str(tmp_path)!r})"] + [f"import tilec.{name}" for name in names]
    )
    text += "\nfrom tilec.costs import cost; assert cost('on(zen4, 1, M)', {'M': 7}, 132) == 7"
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr


def test_torch_has_a_row_for_every_drawn_shape() -> None:
    pytest.importorskip("torch")
    from draw import drawn
    from sweep import KERNELS
    from work import row_of

    rows = [
        row_of(each) for each in drawn(0, dict.fromkeys(("products", "attention", "rows", "quantised"), 50))
    ]
    assert all(row.peers and row.bytes > 0 for row in rows)
    assert {row.kernel for row in rows} >= KERNELS.keys()


@pytest.mark.slow
def test_more_schedules_than_a_library_chooses_among_are_those_of_several_kernels(tmp_path: Path) -> None:
    schedules = module_of(BENCHMARKS / "costs" / "schedules.py", "times_of_schedules")
    whole = load_manifest(schedules.MANIFEST).kernels
    split = load_manifest(schedules.write_split(tmp_path / "split.toml")).kernels
    configs: dict[str, list[dict[str, Any]]] = {}
    for kernel in split:
        assert len(kernel.variants) <= CAPACITY.max_choices
        held = configs.setdefault(re.sub(r"__\d+$", "", kernel.name), [])
        held += [each.config for each in kernel.variants if each.config not in held]
    assert configs == {kernel.name: [each.config for each in kernel.variants] for kernel in whole}
    assert len(split) > len(whole)


def test_fewer_rows_that_take_longer_are_told_by_stretches() -> None:
    from summary import slower_with_fewer

    us = {1: 5.0, 2: 5.0, 3: 9.0, 4: 8.0, 5: 5.1, 6: 5.0, 7: 6.0, 8: 6.1, 9: 5.95}
    assert [each.text for each in slower_with_fewer(us)] == [
        "3..4 rows: 3 take 9.0 us, 6 take 5.0 (+80%)",
    ]


def test_a_family_is_told_by_its_mean_its_tenth_percentile_and_its_worst() -> None:
    from summary import lines

    rows = [
        {"family": "rows", "name": f"k{i}", "us": 1.0, "right": True, "ratios": {"torch": ratio}}
        for i, ratio in enumerate((0.5, 2.0, 1.0, 1.0))
    ]
    rows.append({"family": "rows", "name": "k4", "missed": "no variant"})
    told = list(lines(rows))
    assert told[2:] == [
        "| rows | 5 | 1 | 0 | torch | 4 | 1.000 | 0.500 | 0.500 (k0) |",
        "missed: k4: no variant",
    ]


def test_pictures_show_each_family_and_each_sweep() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    from pictures import ratios, sweeps

    shapes = [
        {"family": "products", "us": 4.0, "ratios": {"cuBLAS": 1.25}},
        {"family": "rows", "us": 2.0, "ratios": {"torch": 3.0, "copy": 0.5}},
        {"family": "quantised", "missed": "no variant"},
    ]
    assert ratios(shapes).startswith(b"\x89PNG")
    assert ratios(shapes) != ratios(shapes[:1])
    rows = [{"kernel": "linear", "sizes": [64, 32], "us": {"1": 2.0, "2": 3.0}}]
    assert sweeps(rows) != sweeps([*rows, rows[0] | {"us": {"1": 4.0, "2": 1.0}}])
