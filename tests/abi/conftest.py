"""A package built once, and C programs compiled against it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from c_programs import compile_program
from linked import link
from samples import sample_spec

from tilec.package.write import BuildReport, write_package
from tilec.targets import native_host

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> BuildReport:
    """The sample library for this machine, with its archive."""
    return write_package(sample_spec(native_host()), tmp_path_factory.mktemp("sample"), static=True)


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the stand-in for libcuda.so.1."""
    folder = tmp_path_factory.mktemp("driver")
    flags = ("-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-pthread")
    link(*flags, HERE / "programs" / "fake_cuda.c", "-o", folder / "libcuda.so.1")
    return folder


@pytest.fixture
def program(sample: BuildReport, tmp_path: Path) -> Callable[..., Path]:
    """``program("typed.c", "-std=c11")``: a program linked with the sample library; ``static=True`` links the
    archive, ``linked=False`` neither."""

    def build(source: str, *flags: str, static: bool = False, linked: bool = True) -> Path:
        library = sample.archive if static and sample.archive else sample.library
        library = library if linked else None
        return compile_program(sample, library, source, flags, tmp_path, native_host())

    return build
