"""`--cuda-cases DIR` keeps the cases of these tests for a machine with a GPU."""

from __future__ import annotations

import agree
import pytest
from construct_cases import CudaCases


def pytest_sessionstart(session: pytest.Session) -> None:
    folder = session.config.getoption("--cuda-cases")
    if folder is not None:
        agree.cuda_cases = CudaCases(folder)


def pytest_sessionfinish() -> None:
    if agree.cuda_cases is not None:
        agree.cuda_cases.write()
        agree.cuda_cases = None
