"""Shared fixtures and hooks: golden text; passes verified one by one; tests that need a CUDA compiler."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tilec.backends.cuda.codegen.compilers import find_compiler
from tilec.errors import EnvironmentError_


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-golden` rewrites golden files instead of comparing with them; `--cuda-cases` keeps what
    tests/constructs meets for a machine with a GPU."""
    help_text = "rewrite golden files with what tests produce"
    parser.addoption("--update-golden", action="store_true", help=help_text)
    help_text = "write the cases of tests/constructs to this folder; run.py there checks them on a GPU"
    parser.addoption("--cuda-cases", type=Path, metavar="DIR", help=help_text)
    help_text = "begin no test marked slow so many seconds after the start: it is skipped, with that reason"
    parser.addoption("--slow-until", type=float, metavar="SECONDS", default=float("inf"), help=help_text)


_SLOW_UNTIL = pytest.StashKey[float]()


def pytest_configure(config: pytest.Config) -> None:
    """Has the tile IR verified after every pass, in compile processes too. Examples may take as long as they
    do on a busy machine."""
    config.stash[_SLOW_UNTIL] = time.monotonic() + config.getoption("--slow-until")
    os.environ.setdefault("TILEC_VERIFY", "1")
    settings.register_profile("tests", deadline=None)
    settings.load_profile("tests")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and found for tests stays for the whole run: no garbage is looked for in it. What
    follows makes many objects and few cycles: it is looked through less often than usual, which is a tenth of
    the time of lowering."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(50_000, 20, 20)
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips tests marked ``nvrtc`` where no CUDA compiler is found. Slow tests come last."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is not None)
    compiling = [item for item in items if item.get_closest_marker("nvrtc")]
    if not compiling:
        return
    try:
        find_compiler()
    except EnvironmentError_ as error:
        for item in compiling:
            item.add_marker(pytest.mark.skip(reason=error.what))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips slow tests that would begin too late."""
    if item.get_closest_marker("slow") and time.monotonic() > item.config.stash[_SLOW_UNTIL]:
        pytest.skip("slow, and the time of this run is used up (--slow-until)")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[..., None]:
    """``golden(text)`` compares with ``golden/<module>/<test>.txt`` beside the test, a second argument
    names another file in that folder. `--update-golden` writes the file."""
    here = Path(request.path)
    folder = here.parent / "golden" / here.stem
    default = request.node.name.replace("[", "-").rstrip("]").replace("/", "_") + ".txt"
    update = request.config.getoption("--update-golden")

    def check(text: str, name: str = default) -> None:
        file = folder / name
        if update:
            folder.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            return
        if not file.exists():
            pytest.fail(f"{file} is missing; run pytest --update-golden and read the difference")
        assert text == file.read_text(encoding="utf-8"), f"{file} differs; --update-golden rewrites it"

    return check


@pytest.fixture(scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a cache of this run, in which kernels in process are built for this CPU."""
    folder = tmp_path_factory.mktemp("kernels")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEC_CACHE_DIR", str(folder))
        patch.setenv("TILEC_TARGET", "cpu")
        for name in [name for name in os.environ if name.startswith("TILELANG_")]:
            patch.delenv(name)
        yield folder
