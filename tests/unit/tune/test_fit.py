"""Costs from times: what the terms of a schedule are, and that planted costs come back."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tilec.build.schedules.cost_texts import cost_text, unrounded
from tilec.build.schedules.features import Features, features_of
from tilec.build.schedules.fit import Chooser, Times, fit
from tilec.cli.main import run
from tilec.costs import cost
from tilec.manifest import load_manifest
from tilec.tune.fit.schedule_file import read_times

KERNELS = Path(__file__).parents[3] / "examples" / "kernels"
MANIFEST = f"""
edition = 1
[package]
name = "fits"
[targets]
cuda = ["sm_90a"]
[[kernel]]
name = "product"
source = "{KERNELS / "gemm.py"}:matmul"
args = {{ dtype = "float16" }}
dims = {{ M = "dynamic", N = "%8", K = "%8" }}
fallback = "none"
[[kernel.override]]
schedules = [
  {{ config = {{ bM = 128, bN = 256, bK = 64 }}, cost = "1" }},
  {{ config = {{ bM = 64, bN = 64, bK = 64, split_k = 2 }}, cost = "1" }},
]
"""
#: Of a large and of a small tile: neither is the better one everywhere.
PLANTED = (
    "4 + waves(ceil(N / 256) * ceil(M / 128)) * (3 + 0.6 * ceil(K / 64))",
    "2 + 0.3 * waves(ceil(N / 64) * ceil(M / 64) * 2) * ceil(ceil(K / 64) / 2)",
)
UNITS = 132


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    path = tmp_path / "fits.toml"
    path.write_text(MANIFEST)
    return path


@pytest.fixture
def times() -> list[Times]:
    shapes = itertools.product((1, 100, 700, 5000), (128, 1000, 4096), (256, 2048, 8192))
    found = []
    for m, n, k in shapes:
        dims = {"M": m, "N": n, "K": k}
        found.append(Times(dims, {at: cost(text, dims, UNITS) for at, text in enumerate(PLANTED)}))
    return found


@pytest.fixture
def features(manifest: Path) -> list[Features]:
    (kernel,) = load_manifest(manifest).kernels
    return [features_of(variant) for variant in kernel.variants]


def test_terms_come_from_the_tile_ir(features: list[Features]) -> None:
    large, small = features
    assert (large.blocks, large.trips) == ("ceil(N / 256) * ceil(M / 128)", "ceil(K / 64)")
    assert (small.blocks, small.trips) == ("ceil(N / 64) * ceil(M / 64) * 2", "ceil(ceil(K / 64) / 2)")
    assert cost(large.bytes, {"M": 10, "N": 20, "K": 30}, 1) == pytest.approx(2e-6 * (300 + 600 + 200))
    assert [cost(text, {"M": 1, "N": 24, "K": 64}, 1) for text in large.ragged] == [0, 0, 1, 1]
    assert len(set(large.terms(1)) - set(large.terms(2))) == 2


@pytest.mark.parametrize(("parts", "at_once"), [(2, 66), (3, 39), (4, 30), (6, 17), (8, 15)])
def test_clusters_leave_multiprocessors_idle(manifest: Path, parts: int, at_once: int) -> None:
    """As many blocks that share K run at once as times of an H200 say."""
    manifest.write_text(MANIFEST.replace("split_k = 2", f"split_k = {parts}"))
    (kernel,) = load_manifest(manifest).kernels
    waves = features_of(kernel.variants[1]).terms(1)[1]
    clusters = (at_once, at_once + 1, 2 * at_once, 2 * at_once + 1)
    assert [cost(waves, {"M": 64 * each, "N": 64}, UNITS) for each in clusters] == [1, 2, 2, 3]


@pytest.mark.parametrize(
    ("tiles", "depth", "parts"),
    [(2, 660, 66), (44, 660, 3), (45, 660, 2), (67, 660, 1), (2, 13, 2), (2, 4, 1)],
)
def test_parts_through_the_workspace_are_those_of_the_launch(
    manifest: Path, tiles: int, depth: int, parts: int
) -> None:
    """As many as 132 multiprocessors have room for, of six trips or more; `spread_depth.py` has the rule."""
    manifest.write_text(MANIFEST.replace("split_k = 2", "spread_k = 6"))
    (kernel,) = load_manifest(manifest).kernels
    found = features_of(kernel.variants[1])
    dims = {"M": 64 * tiles, "N": 64, "K": 64 * depth}
    assert cost(found.joined, dims, UNITS) == parts
    assert cost(found.blocks, dims, UNITS) == tiles * parts
    assert cost(found.trips, dims, UNITS) == -(-depth // parts)
    told = found.cost(1, [1, 2, 3, 4, *[0.0] * (len(found.terms(1)) - 4)])
    waves = -(-tiles * parts // UNITS)
    assert cost(told, dims, UNITS) == 1 + waves * (2 + 3 * -(-depth // parts)) + 4 * parts


def test_rows_of_groups_have_tiles_of_their_own(manifest: Path) -> None:
    """Eight products of an eighth of K each, which are no cluster."""
    manifest.write_text(MANIFEST.replace("split_k = 2", "fold_k = true"))
    (kernel,) = load_manifest(manifest).kernels
    found = features_of(kernel.variants[1])
    assert (found.blocks, found.spread) == ("ceil(N / 64) * ceil(M / 64) * 8", 1)
    assert [cost(found.trips, {"K": depth}, UNITS) for depth in (64, 512, 513)] == [1, 1, 2]


def test_rows_of_groups_along_k_have_tiles_of_the_result(manifest: Path) -> None:
    """Eight products of an eighth of N each, which clusters share like any."""
    text = MANIFEST.replace(":matmul", ":linear").replace("split_k = 2", "split_k = 2, fold_k = true")
    manifest.write_text(text)
    (kernel,) = load_manifest(manifest).kernels
    found = features_of(kernel.variants[1])
    blocks = [cost(found.blocks, {"M": 64, "N": columns}, UNITS) for columns in (1, 512, 513)]
    assert (blocks, found.spread) == ([16, 16, 32], 1)
    assert cost(found.trips, {"K": 512}, UNITS) == 4


def test_rows_that_a_cluster_shares_have_a_part_of_their_columns_in_each_block(manifest: Path) -> None:
    head, _, _ = MANIFEST.partition("[[kernel]]")
    rows = f'''{head}[[kernel]]
name = "rows"
source = "{KERNELS}/softmax.py:softmax"
dims = {{ M = "dynamic", N = "dynamic", ldx = "dynamic" }}
config = {{ rows = 1, bN = 1024, threads = 128, split_row = 4 }}
fallback = "none"
'''
    manifest.write_text(rows)
    (kernel,) = load_manifest(manifest).kernels
    found = features_of(kernel.variants[0])
    assert (found.blocks, found.trips) == ("M * 4", "ceil(ceil(N / 1024) * 1024 / 4)")
    assert found.spread > 1


@pytest.mark.parametrize(
    ("size", "text"),
    [
        ("(N + 127) // 128", "ceil(N / 128)"),
        ("(K + 63) // 64 - 0 + 1 - 1", "ceil(K / 64)"),
        ("N // 4", "ceil((N - 3) / 4)"),
        ("N // 1", "N"),
        ("max(M, 2) * N", "(max(M, 2) * N)"),
    ],
)
def test_sizes_become_costs(size: str, text: str) -> None:
    assert cost_text(size) == text


def test_the_last_tile_counts_with_its_share() -> None:
    assert unrounded("(K + 63) // 64 - 0 + 1 - 1", {"K": 96}) == 1.5
    assert unrounded("N % 4", {"N": 7}) == 3


def test_planted_costs_come_back(features: list[Features], times: list[Times]) -> None:
    for number, each in enumerate(features):
        found = fit(each, number, times, UNITS)
        assert found is not None
        errors = [cost(found, one.dims, UNITS) / one.us[number] - 1 for one in times]
        assert max(map(abs, errors)) < 0.01


def test_terms_that_say_the_same_do_not_hinder(features: list[Features], times: list[Times]) -> None:
    twice = replace(features[0], ragged=("1", "1"))
    assert fit(twice, 0, times, UNITS) == fit(features[0], 0, times, UNITS)


def test_few_times_tell_nothing(features: list[Features], times: list[Times]) -> None:
    assert fit(features[0], 0, times[:5], UNITS) is None


def test_the_useful_schedules_are_kept(times: list[Times]) -> None:
    costs = {0: PLANTED[0], 1: PLANTED[1], 2: f"{PLANTED[1]} + 1"}
    timed = [Times(each.dims, {**each.us, 2: each.us[1] + 1}) for each in times]
    chooser = Chooser(costs, timed, UNITS)
    assert sorted(chooser.chosen(3, 0.001)) == [0, 1]
    assert chooser.loss([0, 1]) == 0
    assert chooser.loss([0]) > 0
    assert len(chooser.chosen(1, 0.001)) == 1


def test_what_was_not_timed_at_a_shape_counts_neither_way() -> None:
    times = [Times({"M": at}, {0: 2.0, 1: 1.0} if at % 2 else {0: 2.0}) for at in range(1, 9)]
    chooser = Chooser({0: "2", 1: "1"}, times, UNITS)
    assert chooser.loss([0, 1]) == 0
    assert chooser.untimed([0, 1]) == 4
    assert chooser.chosen(2, 0.001) == [0, 1], "alone, the second leaves shapes that nothing is known of"


def written(path: Path, times: list[Times], configs: list[object]) -> Path:
    told = [{"dims": dict(each.dims), "us": {str(at): us for at, us in each.us.items()}} for each in times]
    kernels = {"product": {"configs": configs, "times": told}}
    path.write_text(json.dumps({"machine": "a GPU", "units": UNITS, "kernels": kernels}))
    return path


def test_the_command_writes_lists_that_manifests_read(
    manifest: Path, times: list[Times], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configs = [dict(variant.config) for variant in load_manifest(manifest).kernels[0].variants]
    file = written(tmp_path / "times.json", times, list(configs))
    out = tmp_path / "made.toml"
    parts = ["--part", "few:M=1..128:2", "--part", "many:M=>=129:2"]
    assert run(["fit", str(manifest), str(file), "--kernel", "product", *parts, "--write", str(out)]) == 0
    assert "0.0%" in capsys.readouterr().out
    start = MANIFEST.index("schedules = [")
    manifest.write_text(MANIFEST[:start] + 'schedules = "made.toml:many"\n')
    variants = load_manifest(manifest).kernels[0].variants
    assert [dict(variant.config) in configs for variant in variants] == [True, True]
    dims = {"M": 5000, "N": 4096, "K": 8192}
    assert math.isclose(min(cost(each.cost, dims, UNITS) for each in variants), times[-1].best, rel_tol=0.02)


def test_times_of_several_files_count_together_by_configs(
    manifest: Path, times: list[Times], tmp_path: Path
) -> None:
    """Whatever the order of their schedules; those that the manifest has no more say nothing."""
    variants = load_manifest(manifest).kernels[0].variants
    configs: list[object] = [dict(variant.config) for variant in variants]
    turned = [replace(each, us={1 - at: us for at, us in each.us.items()}) for each in times]
    old = [replace(each, us={**each.us, 2: 0.5}) for each in turned]
    gone = {**configs[0], "bN": 512}
    one = written(tmp_path / "one.json", times[:5], configs)
    other = written(tmp_path / "other.json", old[5:], [*configs[::-1], gone])
    assert read_times([one, other], "product", variants).times == tuple(times)


def test_times_of_different_devices_are_not_put_together(
    manifest: Path, times: list[Times], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configs: list[object] = [dict(variant.config) for variant in load_manifest(manifest).kernels[0].variants]
    files = [str(written(tmp_path / name, times, configs)) for name in ("one.json", "other.json")]
    other = Path(files[1])
    other.write_text(other.read_text().replace(f'"units": {UNITS}', '"units": 108'))
    command = ["fit", str(manifest), *files, "--kernel", "product", "--part", "all:M=>=1:2"]
    assert run([*command, "--write", str(tmp_path / "made.toml")]) == 2
    assert "108 multiprocessors" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: "{}", "has no times of product"),
        (lambda text: text.replace('"bM"', '"tile"'), "is of other schedules"),
        (lambda text: text.replace('"K": 2048', '"k": 2048'), "gives no K: M=1 N=128 k=2048"),
        (lambda text: re.sub(r'"us": {"0": [0-9.]+', '"us": {"0": 0.0', text), "a time that is none"),
    ],
)
def test_other_files_are_refused(
    manifest: Path,
    times: list[Times],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[str], str],
    said: str,
) -> None:
    configs = [dict(variant.config) for variant in load_manifest(manifest).kernels[0].variants]
    file = written(tmp_path / "times.json", times, list(configs))
    file.write_text(change(file.read_text()))
    out = tmp_path / "made.toml"
    command = ["fit", str(manifest), str(file), "--kernel", "product", "--part", "all:M=>=1:2"]
    assert run([*command, "--write", str(out)]) == 2
    assert said in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    ("part", "before", "said"),
    [
        ("all:M=>=1:2", "[[all]", "is not valid TOML"),
        ("all:m=>=1:2", None, 'for sizes of "m", which is no dim of product'),
        ("all:M=>=9000:2", None, "too few shapes were timed with M = >=9000"),
    ],
)
def test_lists_that_cannot_be_written_are_refused(
    manifest: Path,
    times: list[Times],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    part: str,
    before: str | None,
    said: str,
) -> None:
    configs = [dict(variant.config) for variant in load_manifest(manifest).kernels[0].variants]
    file = written(tmp_path / "times.json", times, list(configs))
    out = tmp_path / "made.toml"
    if before is not None:
        out.write_text(before)
    command = ["fit", str(manifest), str(file), "--kernel", "product", "--part", part, "--write", str(out)]
    assert run(command) == 2
    assert said in capsys.readouterr().err
