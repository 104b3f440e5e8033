"""The helpers of test files, and what a device is asked in process."""

from __future__ import annotations

import importlib.util
import random
from typing import Any

import pytest

from tilec import testing
from tilec.carver.arch import driver


def marks(decorated: Any) -> list[str]:
    return [mark.name for mark in getattr(decorated, "pytestmark", [])]


def skipped(mark: Any) -> bool:
    """Whether a function under the mark is skipped."""

    def test() -> None: ...

    found = mark(test).pytestmark[0]
    return found.name == "skip" or bool(found.args[0])


def test_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert skipped(testing.requires_rocm)
    assert skipped(testing.requires_metal)
    assert testing.requires_llvm(skipped) is skipped
    assert skipped(testing.requires_package("no_such_package"))
    assert not skipped(testing.requires_package("pytest"))
    monkeypatch.setattr(testing, "cuda_devices", lambda: 0)
    assert skipped(testing.requires_cuda)
    assert skipped(testing.requires_cuda_compute_version(8))
    monkeypatch.setattr(testing, "cuda_devices", lambda: 1)
    monkeypatch.setattr(testing, "device_attribute", {75: 9, 76: 0}.__getitem__)
    assert not skipped(testing.requires_cuda)
    assert not skipped(testing.requires_cuda_compute_version(8, 9))
    assert not skipped(testing.requires_cuda_compute_version_eq(9))
    assert skipped(testing.requires_cuda_compute_version_gt(9))
    assert not skipped(testing.requires_cuda_compute_version_le(9, 0))
    with pytest.raises(KeyError):
        testing.requires_cuda_compute_version(9, 0, "near")


def test_marks_of_other_devices_skip() -> None:
    assert skipped(testing.requires_webgpu)
    assert skipped(testing.requires_gfx950())
    assert skipped(testing.requires_some_package("x", version=3))
    assert testing.requires_cpu(skipped) is skipped
    with pytest.raises(AttributeError, match="assert_everything"):
        testing.assert_everything  # noqa: B018


def test_seeds() -> None:
    testing.set_random_seed(7)
    first = random.random()
    testing.set_random_seed(7)
    assert random.random() == first


def test_functions_are_called_here() -> None:
    assert testing.process_func(max, 3, 5) == testing.regression(max, 3, 5) == 5


def test_the_device_at_hand() -> None:
    assert driver.get_num_sms() >= 1
    assert driver.get_max_dynamic_shared_size_bytes() >= driver.get_shared_memory_per_block() > 0
    assert driver.get_device_name()
    assert importlib.util.find_spec("tilec.carver.arch.driver") is not None
