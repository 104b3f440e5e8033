"""`tilec verify --emulate` without a library around it."""

from __future__ import annotations

import pytest
from emulated import kernel_of

from tilec.emulate import EmulatedKernel
from tilec.errors import EmulationError
from tilec.ir.guards import Guard
from tilec.trials.facts import facts_of
from tilec.trials.oracle import Author, Oracle
from tilec.verify.emulated import EmulatedWalk


@pytest.fixture(params=["sm_80", "compute_80", "sm_90a"])
def chosen(request):
    kernel = kernel_of("gemm.py:matmul", {"M": Guard(), "N": Guard(div=8), "K": Guard(div=8)},
                       {"dtype": "float16"}, bM=64, bN=64, bK=64, num_stages=2, threads=128)  # fmt: skip
    facts = facts_of(kernel, request.param)
    return facts, facts.variants[0], Oracle(facts, Author())


def test_variants_pass(chosen):
    results = list(EmulatedWalk(*chosen, seed=0).results(None))
    assert [result.values for result in results] == ["random"] * 3 + ["special"]
    assert all(result.passed and result.oracle == "interpreter" for result in results)
    assert results[0].device == "emulated"


def test_one_case(chosen):
    (result,) = EmulatedWalk(*chosen, seed=0).results({"M": 5, "N": 8, "K": 16})
    assert result.passed
    assert "--emulate" in result.command("lib.so")


def test_hazard_fails_the_case(chosen, monkeypatch):
    def stopped(self, args, dims):
        raise EmulationError("race: warp 0 writes what warp 1 reads")

    monkeypatch.setattr(EmulatedKernel, "__call__", stopped)
    (result,) = EmulatedWalk(*chosen, seed=0).results({"M": 5, "N": 8, "K": 16})
    assert result.outcome == "failed"
    assert "race" in result.detail
