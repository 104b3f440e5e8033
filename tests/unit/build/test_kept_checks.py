"""What `check` found is found again, and only while nothing that it follows from has changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tilec.build.elaborated import checking
from tilec.build.elaborated.checking import Checked, check_sources
from tilec.errors import SourceError
from tilec.manifest import load_manifest

KERNELS = """\
import tilec.language as T
from widths import WIDTH


def rows(M, block=WIDTH):
    @T.prim_func
    def main(A: T.Tensor((M,), "float32"), B: T.Tensor((M,), "float32")):
        with T.Kernel(T.ceildiv(M, block), threads=64) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i]

    return main
"""
MANIFEST = """\
edition = 1
[package]
name = "demo"
[targets]
cpu = ["x86-64-v2"]
cuda = ["sm_80"]
[[kernel]]
name = "rows"
source = "kernels.py:rows"
dims = { M = ["1..64", "dynamic"] }
config = { split_k = 2 }
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The variants that were elaborated, in this process; the project is in ``tmp_path``."""
    titles: list[str] = []

    def here(
        work: Callable[[checking._Task], checking._Answer],
        tasks: list[checking._Task],
        jobs: int,
        done: Callable[[int, checking._Answer], None],
        title: Callable[[checking._Task], str],
    ) -> None:
        for at, task in enumerate(tasks):
            titles.append(title(task))
            done(at, work(task))

    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(checking, "run_tasks", here)
    (tmp_path / "kernels.py").write_text(KERNELS)
    (tmp_path / "widths.py").write_text("WIDTH = 64\n")
    (tmp_path / "demo.toml").write_text(MANIFEST)
    return titles


def check(folder: Path) -> Checked:
    seen: list[int] = []
    checked = check_sources(
        load_manifest(folder / "demo.toml"), 1, progress=lambda done, *_: seen.append(done)
    )
    assert seen == list(range(1, checked.elaborated + 1))
    return checked


def test_nothing_is_asked_twice(tmp_path: Path, asked: list[str]) -> None:
    first = check(tmp_path)
    assert len(asked) == first.total == 2
    assert [remark.place.line for remark in first.remarks] == [11]
    assert check(tmp_path) == first
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("file", "old", "new", "count"),
    [
        ("kernels.py", "A[bx * block + i]", "2.0 * A[bx * block + i]", 2),
        ("widths.py", "64", "32", 2),
        ("demo.toml", "1..64", "1..32", 1),
        ("demo.toml", "split_k = 2", "split_k = 4", 2),
        ("demo.toml", '"sm_80"', '"sm_90a"', 2),
        ("demo.toml", 'cuda = ["sm_80"]\n', "", 2),
        ("demo.toml", "config = { split_k = 2 }", "config = { split_k = 2 }\ntune = { block = [32] }", 2),
    ],
)
def test_what_has_changed_is_asked_again(
    tmp_path: Path, asked: list[str], file: str, old: str, new: str, count: int
) -> None:
    check(tmp_path)
    path = tmp_path / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    del asked[:]
    check(tmp_path)
    assert len(asked) == count


def test_remarks_stand_in_the_lines_of_now(tmp_path: Path, asked: list[str]) -> None:
    check(tmp_path)
    (tmp_path / "demo.toml").write_text("# a comment\n" + MANIFEST)
    assert [remark.place.line for remark in check(tmp_path).remarks] == [12]
    assert len(asked) == 2


def test_errors_are_asked_again(tmp_path: Path, asked: list[str]) -> None:
    (tmp_path / "kernels.py").write_text(KERNELS.replace("A[bx", "D[bx"))
    for count in (1, 2):
        with pytest.raises(SourceError):
            check(tmp_path)
        assert len(asked) == count


def test_without_a_cache_all_is_asked(
    tmp_path: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEC_CACHE", "0")
    check(tmp_path)
    check(tmp_path)
    assert len(asked) == 4
