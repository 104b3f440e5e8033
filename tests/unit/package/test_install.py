from __future__ import annotations

from pathlib import Path

import pytest

from tilec.package.install import install, scratch_folder


def interrupted(out_dir: Path) -> None:
    with scratch_folder(out_dir) as folder:
        (folder / "half").write_text("written")
        raise KeyboardInterrupt


def test_a_scratch_folder_goes_whatever_happens(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupted(tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


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
