"""The kernels of the manifests here against their NumPy references: interpreted, called in process with torch
tensors, lowered for GPUs; with ``-m emulate`` also run on the emulated ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from families import Suite, title

from tilec.targets import Target

FOLDER = Path(__file__).parent

#: Values of dims that idioms.toml leaves open: an edge of a tile at the end of each.
PRODUCTS = {"M": 136, "N": 136, "K": 136}
SUITES = (Suite(FOLDER / "idioms.toml", PRODUCTS, default=2),)
CASES = [(suite, name) for suite in SUITES for name in suite.plans]
ON_GPUS = [(suite, name, target) for suite in SUITES for name, target in suite.on_gpus]

every_kernel = pytest.mark.parametrize(("suite", "name"), CASES, ids=title)


@every_kernel
def test_the_interpreter_agrees_with_the_reference(suite: Suite, name: str) -> None:
    case = suite.case(name)
    case.check(case.interpreted.outputs)


@every_kernel
def test_a_call_with_torch_tensors_agrees_with_the_reference(suite: Suite, name: str) -> None:
    case = suite.case(name)
    case.check(case.called())


@every_kernel
def test_kernels_lower_for_gpus(suite: Suite, name: str) -> None:
    suite.case(name).check_lowered()


@pytest.mark.emulate
@pytest.mark.parametrize(("suite", "name", "target"), ON_GPUS, ids=title)
def test_emulated_gpus_agree_with_the_reference(suite: Suite, name: str, target: Target) -> None:
    suite.case(name).check_emulated(target)
