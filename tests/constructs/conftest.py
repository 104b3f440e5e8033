"""`--cuda-cases DIR` keeps the cases of these tests for a machine with a GPU. The C of dispatch tables and
runtime, the same for every construct, is compiled without optimisation: that is most of a build's time."""

from __future__ import annotations

import agree
import pytest
from construct_cases import CudaCases

from tilec.codegen import toolchain

_QUICK = ("-O0", "-fno-sanitize=all")  # zig adds a sanitizer to code that is not optimised


@pytest.fixture(autouse=True)
def compile_c_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = [flag for each in toolchain._C_FLAGS for flag in (_QUICK if each == "-O2" else (each,))]
    monkeypatch.setattr(toolchain, "_C_FLAGS", tuple(flags))


def pytest_sessionstart(session: pytest.Session) -> None:
    folder = session.config.getoption("--cuda-cases")
    if folder is not None:
        agree.cuda_cases = CudaCases(folder)


def pytest_sessionfinish() -> None:
    if agree.cuda_cases is not None:
        agree.cuda_cases.write()
        agree.cuda_cases = None
