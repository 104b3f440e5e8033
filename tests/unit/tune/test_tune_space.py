from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tune_samples import KERNELS

from tilec.errors import InputError, ManifestError
from tilec.manifest import load_manifest
from tilec.manifest.text.conditions import check_condition, holds, names_in
from tilec.tune.plan.problems import Problem, agenda, require_problems


def problems(path: Path) -> tuple[Problem, ...]:
    return agenda(path).problems


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("bM * bN <= 8192", True),
        ("1 < bM < bN", True),
        ("not swap and bM in [16, 64]", True),
        ("(bM if swap else bN) % 7 == 1", False),
        ('target == "sm_90a" or max(bM, bN) // 2 == 64', True),
        ("-bM + bN - 10.5 > 50 / 2", True),
    ],
)
def test_conditions(text: str, result: bool) -> None:
    assert holds(text, {"bM": 64, "bN": 128, "swap": False, "target": "sm_80"}) is result


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')", "bM.__class__", "open('x')", "[x for x in bM]", "bM[0]",
        "f'{bM}'", "min()", "bM <", "(" * 5000, "bM := 3", "2 ** 99",
    ],
)  # fmt: skip
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="condition"):
        check_condition(text)


def test_names_of_a_condition() -> None:
    assert names_in("min(bM, 3) < bN or bM == 1") == ("bM", "bN")


def test_lists_ranges_and_conditions_make_the_configs(manifest: Callable[..., Path]) -> None:
    path = manifest(
        'block = [32, 64, 128]\nthreads = { min = 1, max = 5, step = 2 }\nwhere = ["block * threads < 200"]'
    )
    first = problems(path)[0]
    assert first.space.size == 9
    assert first.configs[0] == {"block": 64}
    found = [(config["block"], config["threads"]) for config in first.configs[1:]]
    assert found == [(32, 1), (32, 3), (32, 5), (64, 1), (64, 3), (128, 1)]


def test_a_function_gives_configs_by_target(manifest: Callable[..., Path]) -> None:
    path = manifest(f'configs = "{KERNELS}:listed"\nthreads = [1, 2]')
    assert [config["block"] for config in problems(path)[0].configs] == [64, 32, 32, 128, 128]


def test_another_table_holds_for_a_target(manifest: Callable[..., Path]) -> None:
    path = manifest(
        "block = [8]\n[kernel.tune.on.cpu]\nblock = [16]\n[kernel.tune.on.x86-64-v2]\nblock = [32]"
    )
    assert [config["block"] for config in problems(path)[0].configs] == [64, 32]


def test_conditions_over_unknown_names_are_named(manifest: Callable[..., Path]) -> None:
    with pytest.raises(ManifestError) as caught:
        problems(manifest('block = [32]\nwhere = ["blok > 3"]'))
    assert 'reads "blok"' in str(caught.value)
    assert 'did you mean "block"' in str(caught.value)


@pytest.mark.parametrize(
    ("tune", "said"),
    [
        ("block = 3", "not a list of values"),
        ("block = []", "not a list of values"),
        ("block = [1, 1]", "twice"),
        ("block = { min = 1, max = 4, stride = 2 }", "no range"),
        ("block = { min = 4, max = 1 }", "holds no value"),
        ('block = [1]\nwhere = ["block ="]', "no condition"),
        ("block = [1]\npoints = [0]", "no point"),
        ('block = [1]\npoints = "all"', "no list of points"),
    ],
)
def test_wrong_spaces_are_errors_of_the_manifest(manifest: Callable[..., Path], tune: str, said: str) -> None:
    with pytest.raises(ManifestError) as caught:
        load_manifest(manifest(tune))
    assert said in str(caught.value)
    assert caught.value.place is not None
    assert "kernel[0].tune" in str(caught.value.place)


def points(path: Path) -> list[list[str]]:
    return [[point.text for point in problem.points] for problem in problems(path)]


def test_points_go_to_the_guard_that_serves_them(manifest: Callable[..., Path]) -> None:
    assert points(manifest("block = [32]\npoints = [1, 64, 65, 4096]")) == [
        ["n=1", "n=64"],
        ["n=65", "n=4096"],
    ]


def test_a_guard_without_points_is_measured_at_an_end(manifest: Callable[..., Path]) -> None:
    assert points(manifest("block = [32]")) == [["n=64"], ["n=4096"]]


def test_a_dim_beside_divisors_is_measured_where_nothing_divides_it(manifest: Callable[..., Path]) -> None:
    kernel = 'dims = { n = ["%8", "dynamic"] }'
    from tune_samples import TWICE

    path = manifest("block = [32]", TWICE.replace('dims = { n = ["1..64", "dynamic"] }', kernel))
    assert points(path) == [["n=4096"], ["n=4095"]]


def test_the_calls_of_a_model_are_points(manifest: Callable[..., Path], tmp_path: Path) -> None:
    calls = [{"kernel": "twice", "dims": {"n": 17}, "count": 3}, {"kernel": "twice", "dims": {"n": 9}}]
    (tmp_path / "model.json").write_text(json.dumps({"calls": calls}))
    found = agenda(manifest("block = [32]"), shapes=tmp_path / "model.json").problems
    assert [[(point.text, point.weight) for point in one.points] for one in found] == [
        [("n=17", 3), ("n=9", 1)]
    ]


def test_points_of_unknown_dims_are_named(manifest: Callable[..., Path]) -> None:
    with pytest.raises(ManifestError, match='gives "m", which is no dim'):
        problems(manifest("block = [32]\npoints = [{ m = 3 }]"))


def test_nothing_to_tune_is_an_error(manifest: Callable[..., Path]) -> None:
    with pytest.raises(InputError, match="nothing to tune"):
        require_problems(agenda(manifest()))


def test_targets_that_no_device_here_runs_are_named(manifest: Callable[..., Path]) -> None:
    with pytest.raises(InputError, match="nothing to tune") as caught:
        require_problems(agenda(manifest("block = [32]"), chosen=lambda _kernel: ()))
    assert caught.value.why == "no device here runs code for x86-64-v2"
    assert "--export" in (caught.value.remedy or "")
