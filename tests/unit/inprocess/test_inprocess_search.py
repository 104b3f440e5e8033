"""Searches in process, row by row: configs, inputs, checks, outcomes, what is kept, the order of trials."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import inprocess_kernels as kernels
import pytest

import tilec
from tilec.autotuner import AutoTuner, AutotuneResult, set_autotune_inputs
from tilec.build.schedules.sketch import promise
from tilec.inprocess.compilation import compiling
from tilec.inprocess.search import tuning
from tilec.inprocess.search.autotuning import expand, with_options
from tilec.inprocess.search.tuned import ProfileArgs
from tilec.inprocess.search.tuning import Search
from tilec.settings import read_settings
from tilec.targets import parse_target

torch = pytest.importorskip("torch")

QUICK = {"warmup": 1, "rep": 2}
X = torch.arange(100.0)


@pytest.fixture(autouse=True)
def by_block(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Measuring gives the milliseconds of a counter, configs are tried in their order; what was measured."""
    seen: dict[str, Any] = {"calls": 0, "options": [], "times": itertools.count(1)}

    def measure(call: Any, **options: Any) -> float:
        call()
        seen["calls"] += 1
        seen["options"].append(options)
        return float(next(seen["times"]))

    monkeypatch.setattr(tuning, "do_bench", measure)
    monkeypatch.setattr(tuning, "_ordered", list)
    monkeypatch.setenv("TILEC_TUNING_CACHE", "0")
    return seen


def search(configs: list[dict[str, Any]], **profile: Any) -> Search:
    """Of `axpy`, on inputs of its own."""

    def make(config: Mapping[str, Any]) -> Any:
        return with_options(kernels.axpy._request((100,), {"block": config["block"]}), config)

    return Search("axpy", make, configs, ProfileArgs(**QUICK, **profile), [X, 2.0])


BLOCKS = [{"block": 32}, {"block": 64}]


# ---- configs ----


def test_configs_are_lists_products_and_functions() -> None:
    assert expand({"a": [1, 2], "b": "xy"}) == [
        {"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": "x"}, {"a": 2, "b": "y"},
    ]  # fmt: skip
    seen: list[Any] = []

    def configs(n: int, **named: Any) -> Any:
        seen.append((n, named))
        return iter(BLOCKS)

    tuned = tilec.autotune(configs=configs, supply_prog=lambda params: [X, 2.0], **QUICK)(kernels.axpy)
    assert tuned(100, dtype="float32").config == {"block": 32}
    assert seen == [(100, {"dtype": "float32"})]
    with pytest.raises(ValueError, match="configs is 3"):
        tilec.autotune(configs=3)(kernels.axpy)


def test_an_iterator_of_configs_serves_every_call() -> None:
    tuned = tilec.autotune(configs=iter(BLOCKS), supply_prog=lambda params: [X[:50], 2.0], **QUICK)(
        kernels.axpy
    )
    assert tuned(50).config == {"block": 32}
    assert tuned.configs == BLOCKS
    assert tuned.func is kernels.axpy.func


def test_reserved_keys_reach_the_compiler_key_by_key() -> None:
    jitted = tilec.jit(
        kernels.axpy.func,
        out_idx=[-1],
        pass_configs={"tl.disable_tma_lower": True, "tl.disable_wgmma": True},
        compile_flags="--one",
    )
    config = {
        "block": 32,
        "pass_configs": {tilec.PassConfigKey.TL_DISABLE_WGMMA: False},
        "compile_flags": ["-2"],
    }
    request = with_options(jitted._request((100,), {"block": 32}), config)
    assert request.options.pass_configs == {"tl.disable_tma_lower": True, "tl.disable_wgmma": False}
    assert request.options.flags == ("--one", "-2")
    assert request.early_key != jitted._request((100,), {"block": 32}).early_key


def test_an_eager_kernel_runs_with_the_pass_configs_that_won() -> None:
    a, b = torch.randn(40, 24), torch.randn(56, 24)
    configs = [{"bM": 16, "pass_configs": {"tl.disable_tma_lower": True}}]
    tuned = tilec.autotune(configs=configs, **QUICK)(tilec.jit(kernels.linear.func))
    torch.testing.assert_close(tuned(a, b), a @ b.T)
    kernel = tuned.compile(a, b)
    assert kernel.pass_configs == {"tl.disable_tma_lower": True}
    assert kernel.config == configs[0]


def test_arguments_that_are_not_specialised_share_a_search(by_block: dict[str, Any]) -> None:
    options = {"configs": BLOCKS, "supply_prog": lambda params: [X, 2.0], **QUICK}
    tuned = tilec.autotune(do_not_specialize=["dtype"], **options)(kernels.axpy)
    first = tuned(100)
    count = by_block["calls"]
    assert tuned(100, dtype="float32") is first
    assert by_block["calls"] == count
    other = tilec.autotune(**options)(kernels.axpy)
    other(100)
    other(100, dtype="float32")
    assert len(other._best) == 2


# ---- inputs and checks ----


def test_inputs_are_made_for_every_config_unless_they_are_kept() -> None:
    made: list[Any] = []

    def supply(params: Any) -> list[Any]:
        made.append([param.name for param in params])
        return [X, 2.0]

    search(BLOCKS, supply_prog=supply).run()
    assert made == [["X", "a"]] * 2
    made.clear()
    search(BLOCKS, supply_prog=supply, cache_input_tensors=True).run()
    assert len(made) == 1
    with set_autotune_inputs([X, 5.0]):
        search(BLOCKS, supply_prog=supply).run()
    assert len(made) == 1


def test_an_eager_call_keeps_its_tensors() -> None:
    doubled = search(BLOCKS)
    doubled.run()
    inputs = tuning.TrialInputs(doubled.profile, [X, 2.0]).of(doubled.trials[0].kernel)
    assert inputs[0] is not X
    assert inputs[0].equal(X)


def test_checks() -> None:
    def wrong(x: Any, a: float) -> Any:
        return a * x + 1

    found = search(BLOCKS, ref_prog=wrong).explore()
    assert [trial.status for trial in found] == ["wrong result"] * 2
    assert "elements differ" in found[0].error
    assert search(BLOCKS, ref_prog=wrong, skip_check=True).run().ref_latency is not None
    assert search(BLOCKS, ref_prog=wrong, atol=2.0).run().config == {"block": 32}
    compared: list[Any] = []
    by_hand = search(BLOCKS, ref_prog=wrong, manual_check_prog=lambda *both: compared.append(both))
    assert isinstance(by_hand.run(), AutotuneResult)
    (outs, refs), _ = compared
    torch.testing.assert_close(outs[0] + 1, refs[0])


# ---- outcomes ----


def test_what_becomes_of_configs(monkeypatch: pytest.MonkeyPatch, by_block: dict[str, Any]) -> None:
    configs = [{"block": 16}, {"block": "text"}, {"wrong": 1}, {"block": 32}, {"block": 48}]
    plain = tuning.do_bench

    def measure(call: Any, **options: Any) -> float:
        if by_block["calls"] == 1:
            by_block["calls"] += 1
            raise tuning.TimeoutException("it took longer than 1 s")
        return plain(call, **options)

    monkeypatch.setattr(tuning, "do_bench", measure)
    tried = search(configs)
    best = tried.run()
    statuses = ["ok", "not compiled", "not compiled", "timeout", "ok"]
    assert [trial.status for trial in tried.trials] == statuses
    assert [trial.config for trial in tried.trials] == configs
    assert (best.config, best.latency) == ({"block": 16}, 1.0)
    assert best.kernel.get_tuner_result() == {"latency": 1.0, "config": {"block": 16}, "ref_latency": None}
    assert best.libcode == best.kernel.get_kernel_source()
    assert best.func is best.kernel.prim_func


def test_none_left(by_block: dict[str, Any]) -> None:
    tried = search([{"block": "text"}])
    with pytest.raises(RuntimeError, match="no configuration of axpy passed"):
        tried.run()
    assert len(tried.trials) == 1
    assert by_block["calls"] == 0


def test_slow_configs_are_left_early(by_block: dict[str, Any]) -> None:
    search([{"block": 16}, *BLOCKS], early_stop=True, early_stop_factor=3.0).run()
    assert [each["early_stop_baseline"] for each in by_block["options"]] == [None, 1.5, 1.5]
    assert {(each["_n_warmup"], each["_n_repeat"]) for each in by_block["options"]} == {(1, 2)}


@pytest.mark.slow
def test_a_compile_process_that_dies_costs_its_config_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_build_safely", _dies_on_48)
    monkeypatch.setenv("TILEC_JOBS", "2")
    monkeypatch.setenv("TILEC_CACHE", "0")
    found = search([{"block": 8}, {"block": 48}, {"block": 24}]).explore()
    assert [trial.status for trial in found] == ["ok", "not compiled", "ok"]
    assert "the compile process of axpy died" in found[1].error


def _dies_on_48(job: Any) -> Any:
    if "48" in job.ir_text:
        os.kill(os.getpid(), signal.SIGKILL)
    return compiling.build(job)


# ---- the order, what is kept ----


def test_configs_are_tried_in_the_order_of_the_cost_model() -> None:
    def seconds(target: str, tile: int) -> float:
        request = kernels.linear._request((), {"M": 512, "N": 512, "K": 512, "bM": tile, "bN": tile})
        return promise(request.made.kernel, parse_target(target))

    for target in ("x86-64-v3", "sm_90a"):
        assert seconds(target, 64) < seconds(target, 4)


def test_results_are_kept_where_no_function_takes_part(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, by_block: dict[str, Any]
) -> None:
    monkeypatch.setenv("TILEC_TUNING_CACHE", "1")
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path))

    def tuner(**options: Any) -> AutoTuner:
        made = AutoTuner(kernels.doubled, [{"block": 16}, {"block": 32}]).set_compile_args(out_idx=[-1])
        return made.set_profile_args(**options)

    tuner().run(**QUICK)
    assert by_block["calls"] == 2
    again = tuner().run(**QUICK)
    assert (by_block["calls"], again.config, again.latency) == (2, {"block": 16}, 1.0)
    assert again.func is not None
    assert again.libcode
    tuner().run(warmup=2, rep=2)
    assert by_block["calls"] == 4
    tuner(ref_prog=lambda x: 2 * x).run(**QUICK)
    tuner(ref_prog=lambda x: 2 * x).run(**QUICK)
    assert by_block["calls"] == 10  # with the reference's own time
    monkeypatch.setenv("TILEC_TUNING_CACHE", "0")
    tuner().run(**QUICK)
    assert by_block["calls"] == 12
    assert tuner().cache_dir == tmp_path


def test_keys_of_searches() -> None:
    def key(configs: Any = ({"block": 16},), **options: Any) -> str | None:
        return AutoTuner(kernels.doubled, list(configs)).set_compile_args(**options).generate_cache_key()

    assert key() == key()
    others = [key([{"block": 8}]), key(target="sm_80"), key(pass_configs={"tl.disable_tma_lower": True})]
    assert len({key(), *others}) == 4
    assert AutoTuner(kernels.doubled, []).set_kernel_parameters({"block": 4}).generate_cache_key() != key([])
    assert AutoTuner(object(), []).generate_cache_key() is None


def test_the_tuner_runs_on_what_it_is_given() -> None:
    tuner = AutoTuner.from_kernel(kernel=kernels.doubled, configs=lambda: {"block": [16, 32]})
    result = tuner.set_compile_args([-1]).set_profile_args(1, 2, 30).run(early_stop=True)
    assert result.config == {"block": 16}
    with pytest.raises(ValueError, match="early_stop_factor"):
        tuner.run(early_stop_factor=0.5)
    with pytest.raises(TypeError):
        tuner.set_compile_args(speed=3)


# ---- settings ----


@pytest.mark.parametrize(
    ("environment", "jobs"),
    [
        ({"TILELANG_AUTO_TUNING_CPU_COUNTS": "7"}, 7),
        ({"TILELANG_AUTO_TUNING_CPU_COUNTS": "7", "TILELANG_AUTO_TUNING_MAX_CPU_COUNT": "3"}, 3),
        ({"TILELANG_AUTO_TUNING_CPU_UTILITIES": "0.001"}, 1),
        ({"TILEC_JOBS": "5", "TILELANG_AUTO_TUNING_CPU_COUNTS": "7"}, 5),
    ],
)
def test_compile_processes_of_a_search(environment: dict[str, str], jobs: int) -> None:
    assert read_settings({"HOME": "/", **environment}).tuning_jobs == jobs


def test_the_cache_of_results_may_be_off() -> None:
    assert read_settings({}).tuning_cache
    assert not read_settings({"TILELANG_AUTO_TUNING_DISABLE_CACHE": "1"}).tuning_cache
    assert read_settings({"TILELANG_AUTO_TUNING_DISABLE_CACHE": "1", "TILEC_TUNING_CACHE": "1"}).tuning_cache
