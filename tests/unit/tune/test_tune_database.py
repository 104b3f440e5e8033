from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tilec.cache import write_atomically
from tilec.errors import ManifestError, TuneError
from tilec.manifest.tuned import TunedEntry, read_tuned
from tilec.tune.outcome import database
from tilec.tune.outcome.database import updated, write_entries


def entry(kernel: str = "twice", us: float = 3.0, **more: object) -> TunedEntry:
    fields: dict[str, object] = {
        "kernel": kernel,
        "target": "x86-64-v2",
        "dims": {"n": "1..64", "k": 4096},
        "config": {"block": 32, "cluster": [2, 1], "swap": True},
        "latency_us": us,
        "device": "a CPU",
        "source_sha256": "00",
        "date": "2026-01-31",
        **more,
    }
    return TunedEntry.model_validate(fields)


def test_entries_are_sorted_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "demo.tuned.toml"
    write_entries(path, [entry("b"), entry("a", share=0.25, at=("n=64",))])
    found = read_tuned(tmp_path / "demo.toml").entries
    assert [one.kernel for one in found] == ["a", "b"]
    assert found[0] == entry("a", share=0.25, at=("n=64",))


def test_either_order_gives_the_same_bytes(tmp_path: Path) -> None:
    one, other = [entry("a"), entry("c", 5.0)], [entry("b"), entry("d", driver="580")]
    texts = [
        updated(updated("edition = 1\n", first), second) for first, second in ((one, other), (other, one))
    ]
    assert texts[0] == texts[1]
    assert updated(texts[0], one) == texts[0]


def test_comments_are_kept() -> None:
    text = updated("# mine\nedition = 1\n", [entry("a", noise=0.5), entry("b")])
    text = text.replace('[[tuned]]\nkernel = "b"', '# about b\n[[tuned]]\nkernel = "b"')
    text = text.replace("latency_us = 3.0", "latency_us = 3.0  # on a quiet machine", 1)
    text = text.replace("noise = 0.5", "# of nine rounds\nnoise = 0.5", 1)
    again = updated(text, [entry("a", 2.5, noise=0.25, driver="new"), entry("b", 2.0), entry("c")])
    assert again.startswith("# mine\nedition = 1\n")
    assert '# about b\n[[tuned]]\nkernel = "b"' in again
    assert "# of nine rounds\nnoise = 0.25" in again
    assert "latency_us = 2.5  # on a quiet machine" in again


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "demo.tuned.toml"
    write_entries(path, [entry("a")])
    before = path.read_bytes()

    def full(path: Path, data: bytes, mode: int) -> None:
        monkeypatch.setattr("os.replace", _no_room)
        write_atomically(path, data, mode)

    monkeypatch.setattr(database, "write_atomically", full)
    with pytest.raises(TuneError) as caught:
        write_entries(path, [entry("b")])
    assert "No space left" in caught.value.why
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def _no_room(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_an_unknown_key_is_named(manifest: Callable[..., Path], tmp_path: Path) -> None:
    path = tmp_path / "demo.tuned.toml"
    path.write_text(updated("edition = 1\n", [entry()]).replace("latency_us", "latency_ms"))
    with pytest.raises(ManifestError) as caught:
        read_tuned(manifest())
    assert 'unknown key "latency_ms"' in str(caught.value)
    assert 'did you mean "latency_us"' in str(caught.value)
    assert f"{path}:" in str(caught.value)
