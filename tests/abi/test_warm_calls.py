"""The contract of warm calls, as `make bench-dispatch` checks it before it measures."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from example_modules import importable, module_of

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "dispatch"


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    with importable(FOLDER, ()):
        return module_of(FOLDER / "bench.py", "bench_dispatch")


def test_warm_calls_of_every_class_keep_their_contract(bench: ModuleType, tmp_path: Path) -> None:
    package = bench.build(60, tmp_path)
    *counts, system_calls = bench.run(package, "warm.c").split()
    assert counts == ["0"] * 3
    if system_calls == "-":
        pytest.skip("this kernel offers no seccomp filters")
    assert system_calls == "0"
