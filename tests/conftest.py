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

# NumPy multiplies the small tiles of tests by one thread: several take longer, and workers fill the cores.
# Here, as what conftests of folders import brings NumPy.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-golden` rewrites golden files instead of comparing with them; `--cuda-cases` keeps what
    tests/constructs meets for a machine with a GPU."""
    help_text = "rewrite golden files with what tests produce"
    parser.addoption("--update-golden", action="store_true", help=help_text)
    help_text = "write the cases of tests/constructs to this folder; run.py there checks them on a GPU"
    parser.addoption("--cuda-cases", type=Path, metavar="DIR", help=help_text)
    help_text = "a run that falls behind so many seconds skips slow tests and what --sample leaves out"
    parser.addoption("--within", type=float, metavar="SECONDS", default=float("inf"), help=help_text)
    help_text = "of a test with many cases that compile or emulate, run every fourth case"
    parser.addoption("--sample", action="store_true", help=help_text)


_START = pytest.StashKey[float]()
#: Of a test that may be left out: the share of the run's tests that stand before its file.
_BEFORE_IT = pytest.StashKey[float]()
#: By how much of a run's time it may be ahead of the share of its tests: files at the front take longer.
_AHEAD = 0.2
#: Where a case takes long, for the most part, and how many of a test `--sample` leaves whole.
_COSTLY = (
    "abi",
    "constructs",
    "kernels",
    "unit/backends/cpu",
    "unit/backends/cuda",
    "unit/emulate",
    "unit/examples",
)
_MOST_CASES, _ONE_IN = 3, 4


def pytest_configure(config: pytest.Config) -> None:
    """Has the tile IR verified after every pass, in compile processes too. Examples may take as long as they
    do on a busy machine."""
    config.stash[_START] = time.monotonic()
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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skips tests marked ``nvrtc`` where no CUDA compiler is found. Slow tests come last."""
    left_out = set(_beyond_sample(items))
    if config.getoption("--sample"):
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=_is_slow)
    _note_what_may_be_left_out(items, left_out)
    compiling = [item for item in items if item.get_closest_marker("nvrtc")]
    if not compiling:
        return
    try:
        find_compiler()
    except EnvironmentError_ as error:
        for item in compiling:
            item.add_marker(pytest.mark.skip(reason=error.what))


def _is_slow(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is not None


def _note_what_may_be_left_out(items: list[pytest.Item], beyond_sample: set[pytest.Item]) -> None:
    """Keeps with slow tests and with those beyond the sample how much stands before their files."""
    first: dict[Path, int] = {}
    for at, item in enumerate(items):
        before = first.setdefault(item.path, at)
        if _is_slow(item) or item in beyond_sample:
            item.stash[_BEFORE_IT] = before / len(items)


def _beyond_sample(items: list[pytest.Item]) -> list[pytest.Item]:
    """The cases that `--sample` leaves out."""
    here = Path(__file__).parent
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        place = item.path.relative_to(here).as_posix()
        if place.startswith(tuple(f"{folder}/" for folder in _COSTLY)) and not _is_slow(item):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    many = (group for group in cases.values() if len(group) > _MOST_CASES)
    return [item for group in many for at, item in enumerate(group) if at % _ONE_IN]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips what may be left out of a run that is behind its time."""
    before = item.stash.get(_BEFORE_IT, None)
    if before is None:
        return
    used = (time.monotonic() - item.config.stash[_START]) / item.config.getoption("--within")
    if used > before + _AHEAD:
        pytest.skip("takes long, and this run is behind its time (--within)")


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
