from __future__ import annotations

import fcntl
import shutil
from pathlib import Path
from typing import Any

import pytest

from tilec.package.install import install, scratch_folder


def interrupted(out_dir: Path) -> None:
    with scratch_folder(out_dir) as folder:
        (folder / "half").write_text("written")
        raise KeyboardInterrupt


def test_a_scratch_folder_goes_whatever_happens(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupted(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_was_there_stays_where_a_build_fails(tmp_path: Path) -> None:
    (tmp_path / "dist").mkdir()
    with pytest.raises(KeyboardInterrupt):
        interrupted(tmp_path / "dist" / "engine")
    assert list(tmp_path.iterdir()) == [tmp_path / "dist"]
    assert list((tmp_path / "dist").iterdir()) == []


def test_what_a_killed_build_left_goes_and_what_runs_stays(tmp_path: Path) -> None:
    killed = tmp_path / ".tilec-killed"
    killed.mkdir()
    (killed / "lock").touch()
    (killed / "half").write_text("written")
    with scratch_folder(tmp_path) as running, scratch_folder(tmp_path) as other:
        assert running.exists()
        assert other.exists()
        assert not killed.exists()


def test_files_arrive_in_order(tmp_path: Path) -> None:
    with scratch_folder(tmp_path) as folder:
        (folder / "a").write_text("header")
        (folder / "b").write_text("library")
        with pytest.raises(FileNotFoundError):
            install(
                [(folder / "a", "include/a.h"), (folder / "gone", "x"), (folder / "b", "lib/b.so")], tmp_path
            )
        assert (tmp_path / "include" / "a.h").read_text() == "header"
        assert not (tmp_path / "lib").exists()


def test_a_folder_that_was_taken_for_abandoned_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []
    lock = fcntl.flock

    def late(file: Any, how: int) -> None:
        if not taken:  # another process cleans up between making and locking
            taken.append(file.name)
            shutil.rmtree(Path(file.name).parent)
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with scratch_folder(tmp_path) as folder:
        assert folder.exists()
        assert str(folder) not in taken[0]
    assert not list(tmp_path.iterdir())
