"""The contract of warm calls, as `make bench-dispatch` checks it before it measures."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "dispatch"


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_dispatch", FOLDER / "bench.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(FOLDER))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(FOLDER))
    return module


def test_warm_calls_of_every_class_keep_their_contract(bench: ModuleType, tmp_path: Path) -> None:
    package = bench.build(60, tmp_path)
    *counts, system_calls = bench.run(package, "warm.c").split()
    assert counts == ["0"] * 3
    if system_calls == "-":
        pytest.skip("this kernel offers no seccomp filters")
    assert system_calls == "0"
