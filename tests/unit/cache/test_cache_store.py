from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
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
import time
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


# ---- the limit ----


def entries(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


def test_beyond_the_limit_what_was_used_longest_ago_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEC_CACHE_LIMIT", "6200")
    store = Store(tmp_path)
    for number in range(5):
        store.put("image", f"aa{number}", bytes(1000))
        path = tmp_path / "v1" / "image" / "aa" / f"aa{number}"
        os.utime(path, (0, time.time() - 1000 + number))
    assert store.get("image", "aa0") == bytes(1000)  # a read counts as use
    store.put("sources", "bb5", bytes(1000))
    assert len(entries(tmp_path)) == 6
    store.put("image", "aa6", bytes(500))
    assert entries(tmp_path) == {"aa0", "aa3", "aa4", "bb5", "aa6"}
    assert store.get("image", "aa1") is None
    assert store.info().size <= store.info().limit == 6200


def test_without_a_limit_all_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEC_CACHE_LIMIT", "0")
    for number in range(20):
        Store(tmp_path).put("image", f"aa{number}", bytes(1000))
    assert Store(tmp_path).info().entries == 20


def test_what_is_being_written_is_no_entry(tmp_path: Path) -> None:
    folder = tmp_path / "v1" / "image" / "aa"
    (folder / ".tilec-scratch").mkdir(parents=True)
    (folder / ".aa1.half").write_bytes(bytes(5000))
    (folder / ".tilec-scratch" / "kernel.so").write_bytes(bytes(5000))
    Store(tmp_path).trim(1)
    assert entries(tmp_path) == {".aa1.half", "kernel.so"}
    assert Store(tmp_path).info().entries == 0


LIMITED = """
import sys
import time
from pathlib import Path
from tilec.cache import Store
store = Store(Path(sys.argv[1]))
for turn in range(120):
    key = f"{sys.argv[2]}{turn % 7}"
    store.put("image", key, key.encode() * 500)
    assert store.get("image", key) in (key.encode() * 500, None)
    store.info()
"""


def test_many_processes_keep_to_the_limit(tmp_path: Path) -> None:
    env = {**os.environ, "TILEC_CACHE_LIMIT": "9K"}
    command = [sys.executable, "-c", LIMITED, str(tmp_path)]
    writers = [subprocess.Popen([*command, letter], env=env) for letter in "xyz"]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    assert Store(tmp_path).info().size <= 9 << 10


def test_a_key_tells_parts_apart() -> None:
    assert digest("ab", "c") != digest("a", "bc")
    assert digest("ab") == digest(b"ab")


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_cache_raises(tmp_path: Path) -> None:
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(OSError, match="denied"):
        Store(tmp_path).put("image", "ab12", b"code")
