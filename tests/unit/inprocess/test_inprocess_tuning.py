"""Tuning in process: which config wins, what is skipped, what is kept, how arguments pin tunables."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import inprocess_kernels as kernels
import pytest

import tilec
from tilec.autotuner import AutoTuner, TimeoutException, get_autotune_inputs, set_autotune_inputs
from tilec.inprocess.search import tuning
from tilec.inprocess.search.time_limits import within
from tilec.language.frontend.elaborate import describe, load_entry

torch = pytest.importorskip("torch")

CONFIGS = [{"bM": 16, "bK": 8}, {"bM": 32, "bK": 8}, {"bM": 16, "bK": 24}]
QUICK = {"warmup": 1, "rep": 2}


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What measuring gives, one config after the other; a very large number when it has run out."""
    given: list[float] = []

    def measure(call: Any, **_options: Any) -> float:
        call()
        return given.pop(0) if given else 1e9

    monkeypatch.setattr(tuning, "do_bench", measure)
    monkeypatch.setattr(tuning, "_ordered", list)
    return given


def inputs() -> list[Any]:
    return [torch.randn(40, 24), torch.randn(56, 24)]


def test_the_fastest_wins_and_is_remembered(times: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEC_CACHE", "0")
    times[:] = [3.0, 1.0, 2.0]
    tuned = tilec.autotune(configs=CONFIGS, **QUICK)(tilec.jit(kernels.linear.func))
    a, b = inputs()
    torch.testing.assert_close(tuned(a, b), a @ b.T)
    (best,) = tuned._best.values()
    assert best.config == {"bM": 32, "bK": 8}
    assert best.latency == 1.0
    assert best.kernel.config == best.config
    tuned(a, b)
    assert len(tuned._best) == 1
    assert tuned.compile(a, b) is best.kernel


def test_arguments_pin_tunables(times: list[float]) -> None:
    tuned = tilec.autotune(configs=CONFIGS, **QUICK)(tilec.jit(kernels.linear.func))
    a, b = inputs()
    assert tuned._configs((a, b), {"bM": 16}, {"bM": 16}) == [{"bK": 8}, {"bK": 24}]
    torch.testing.assert_close(tuned(a, b, bM=16, bK=8), a @ b.T)
    assert not tuned._best  # nothing was left to choose


def test_equal_arguments_of_other_names_are_searches_of_their_own(times: list[float]) -> None:
    times[:] = [1.0, 2.0, 1.0, 2.0]
    configs = {"bM": [16, 32], "bK": [8, 16]}
    tuned = tilec.autotune(configs=configs, **QUICK)(tilec.jit(kernels.linear.func))
    a, b = inputs()
    first, second = tuned.compile(a, b, bM=16), tuned.compile(a, b, bK=16)
    assert (first.config, second.config) == ({"bK": 8}, {"bM": 16})
    torch.testing.assert_close(tuned(a, b, bK=16), a @ b.T)


def test_wrong_and_broken_configs_are_skipped(times: list[float], caplog: pytest.LogCaptureFixture) -> None:
    times[:] = [5.0]

    def broken_where_fast(a: Any, b: Any) -> Any:
        return a @ b.T

    configs = [{"bM": 16, "wrong": 1}, {"bM": "text"}, {"bM": 16}]
    tuned = tilec.autotune(configs=configs, ref_prog=broken_where_fast, **QUICK)(
        tilec.jit(kernels.linear.func)
    )
    with caplog.at_level(logging.WARNING, "tilec"):
        tuned(*inputs())
    (best,) = tuned._best.values()
    assert best.config == {"bM": 16}
    assert "config {'bM': 16, 'wrong': 1} is skipped" in caplog.text
    assert "config {'bM': 'text'} is skipped" in caplog.text


def test_none_left_is_an_error(times: list[float]) -> None:
    tuned = tilec.autotune(configs=CONFIGS[:1], ref_prog=lambda a, b: a @ b.T + 1, **QUICK)
    with pytest.raises(RuntimeError, match="no configuration of linear passed"):
        tuned(tilec.jit(kernels.linear.func))(*inputs())


def test_nothing_to_compare_is_an_error() -> None:
    for none in ([], {"block": []}):
        with pytest.raises(ValueError, match="there are no configurations of axpy to compare"):
            tilec.autotune(configs=none, **QUICK)(kernels.axpy)(90)


def test_a_factory_gives_the_best_kernel(times: list[float]) -> None:
    times[:] = [2.0, 1.0]
    tuned = tilec.autotune(
        configs={"block": [32, 64]}, supply_prog=lambda params: [torch.ones(90), 2.0], **QUICK
    )
    kernel = tuned(kernels.axpy)(90)
    assert isinstance(kernel, tilec.JITKernel)
    assert kernel.config == {"block": 64}
    with pytest.raises(ValueError, match="scalar a has no supply"):
        tilec.autotune(configs=[{"block": 32}], **QUICK)(kernels.axpy)(90)


def test_given_inputs_win(times: list[float]) -> None:
    with set_autotune_inputs(torch.ones(90), 2.0):
        assert get_autotune_inputs()[1] == 2.0
        assert tilec.autotune(configs=[{"block": 32}], **QUICK)(kernels.axpy)(90).config == {"block": 32}
    assert get_autotune_inputs() is None


def test_auto_tuner_on_a_plain_factory(
    times: list[float], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path))
    configs = [{"block": 16}, {"block": 32}]

    def tuner() -> AutoTuner:
        made = AutoTuner.from_kernel(kernel=kernels.doubled, configs=configs)
        return made.set_compile_args(out_idx=[-1]).set_profile_args(supply_type=tilec.TensorSupplyType.One)

    times[:] = [2.0, 1.0]
    result = tuner().run(warmup=1, rep=2)
    assert (result.config, result.latency, result.ref_latency) == ({"block": 32}, 1.0, None)
    torch.testing.assert_close(result.kernel(torch.ones(64)), torch.full((64,), 2.0))
    assert "void main_" in result.libcode
    assert tuner().generate_cache_key() is not None
    again = tuner().run(warmup=1, rep=2)  # known: nothing is measured
    assert (again.config, again.latency) == (result.config, result.latency)
    assert tuner().set_profile_args(ref_prog=lambda x: 2 * x).run(warmup=1, rep=2).latency == 1e9


def test_misuse() -> None:
    with pytest.raises(ValueError, match="needs configs"):
        tilec.autotune(kernels.axpy)
    with pytest.raises(AssertionError, match="stands above"):
        tilec.autotune(configs=[{}])(lambda: None)
    with pytest.raises(ValueError, match="early_stop_factor"):
        tilec.autotune(configs=[{}], early_stop_factor=0.5)
    with pytest.raises(TypeError, match="'speed'"):
        tilec.autotune(configs=[{}], speed=1)


@pytest.mark.parametrize("in_main", [True, False])
def test_a_config_may_take_too_long(in_main: bool) -> None:
    found: list[BaseException | int] = []

    def check() -> None:
        try:
            found.append(within(5, lambda: 3))
            within(0.05, lambda: time.sleep(1))
        except TimeoutException as error:
            found.append(error)

    if in_main:
        check()
    else:
        thread = threading.Thread(target=check)
        thread.start()
        thread.join()
    assert found[0] == 3
    assert isinstance(found[1], TimeoutException)
    with pytest.raises(KeyError):
        within(1, lambda: {}["missing"])


TUNED = """
import tilec, tilec.language as T
@tilec.autotune(configs=[{"block": 32}])
@tilec.jit
def kernel(A, block: int = 64):
    N = T.dynamic("N")
    A: T.Tensor[[N], T.float32]
    with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
        for i in T.Parallel(block):
            A[bx * block + i] = 1.0
"""


def test_a_manifest_may_name_a_tuned_function(tmp_path: Path) -> None:
    (tmp_path / "tuned.py").write_text(TUNED)
    entry = load_entry("tuned.py:kernel", tmp_path)
    assert describe(entry).form == "eager"


WITH_NUMPY_ALONE = """
import sys
sys.modules["torch"] = None  # "import torch" fails
import numpy as np
import tilec
import inprocess_kernels as kernels

configs = [{"block": 16}, {"block": 64}]
search = tilec.autotune(configs=configs, ref_prog=lambda x: x * 2, warmup=1, rep=2)
kernel = search(tilec.jit(out_idx=[-1])(kernels.doubled))()
assert kernel.config in configs, kernel.config
profiler = kernel.get_profiler()
assert all(type(each) is np.ndarray for each in profiler.inputs())
profiler.assert_allclose(lambda x: x * 2)
profiler.assert_consistent()
try:
    profiler.assert_allclose(lambda x: x * 3)
except AssertionError as error:
    assert "elements differ; worst at" in str(error), error
else:
    raise SystemExit("a wrong reference agreed")
"""


@pytest.mark.slow
def test_a_search_needs_numpy_alone_on_a_cpu() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITH_NUMPY_ALONE], cwd=Path(__file__).parent, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
