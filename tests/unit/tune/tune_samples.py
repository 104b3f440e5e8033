"""A manifest around `faulty_kernels`, and a backend without compile processes."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

from tilec.tune.measure.backends import Local

KERNELS = Path(__file__).with_name("faulty_kernels.py")
HEAD = """\
edition = 1

[package]
name = "demo"

[targets]
cpu = ["x86-64-v2", "x86-64-v3"]
"""
TWICE = f"""
[[kernel]]
name = "twice"
source = "{KERNELS}:twice"
targets = ["x86-64-v2"]
dims = {{ n = ["1..64", "dynamic"] }}
config = {{ block = 64 }}
reference = "{KERNELS}:twice_reference"
"""
#: The same with one guard.
ONE = TWICE.replace('["1..64", "dynamic"]', '"dynamic"')


class InThreads(Local):
    """Compiles in a thread of this process, so that tests can stand in for the compiler."""

    def __init__(self, devices: Sequence[str] = ("cpu",), threads: int = 1) -> None:
        super().__init__(devices, jobs=1, threads=threads)
        self._thread = ThreadPoolExecutor(1)

    def compilers(self) -> Executor:
        return self._thread
