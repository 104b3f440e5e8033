from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tilec.cache import Store, digest, write_atomically


def test_what_is_put_is_got(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.get("image", "ab12") is None
    store.put("image", "ab12", b"code")
    assert store.get("image", "ab12") == b"code"
    assert store.get("sources", "ab12") is None
    store.put("image", "ab12", b"newer")
    assert store.get("image", "ab12") == b"newer"


def test_a_damaged_entry_reads_as_missing(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put("image", "ab12", b"code" * 100)
    (path,) = (one for one in tmp_path.rglob("*") if one.is_file())
    path.write_bytes(path.read_bytes()[:-7])
    assert store.get("image", "ab12") is None
    path.write_bytes(b"")
    assert store.get("image", "ab12") is None


def test_info_and_clear_touch_entries_alone(tmp_path: Path) -> None:
    store = Store(tmp_path)
    (tmp_path / "mine.txt").write_text("not the cache's")
    store.put("image", "ab12", b"code")
    assert store.info().entries == 1
    assert store.clear().entries == 1
    assert store.info().entries == 0
    assert (tmp_path / "mine.txt").exists()


def test_a_failed_write_leaves_the_old_file_and_nothing_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "file"
    write_atomically(target, b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(target, b"new")
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


WRITER = """
import sys
from pathlib import Path
from tilec.cache import Store
store = Store(Path(sys.argv[1]))
for turn in range(200):
    store.put("image", "ab12", sys.argv[2].encode() * 5000)
    assert store.get("image", "ab12") in (b"x" * 5000, b"y" * 5000)
"""


def test_many_processes_never_see_half_an_entry(tmp_path: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), letter]) for letter in "xy"]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    assert Store(tmp_path).info().entries == 1


def test_a_key_tells_parts_apart() -> None:
    assert digest("ab", "c") != digest("a", "bc")
    assert digest("ab") == digest(b"ab")


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_cache_raises(tmp_path: Path) -> None:
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(OSError, match="denied"):
        Store(tmp_path).put("image", "ab12", b"code")
