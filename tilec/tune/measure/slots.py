"""Measuring in a slot: one device, one worker process, one request at a time.

What a slot needs comes with the request as bytes, so that a slot may be a thread here or a process on another
machine. The functions are what executors run.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilec.cache import digest, write_atomically
from tilec.families import device_named
from tilec.portable.devices import where_is
from tilec.portable.runner.process import WorkerProcess


@dataclass(frozen=True)
class Slot:
    """``device`` of ``host`` ("" for this machine). ``threads``: of a CPU, 0 for all."""

    device: str
    threads: int = 0
    host: str = ""

    @property
    def text(self) -> str:
        """For people."""
        return f"{self.device} on {self.host}" if self.host else self.device


@dataclass(frozen=True)
class Parcel:
    """Files by name, under a name of their own."""

    name: str
    files: Mapping[str, bytes]


def parcel_of(folder: Path) -> Parcel:
    """The files of a folder."""
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
    return Parcel(digest(*(part for pair in files.items() for part in pair))[:16], files)


def ask(
    slot: Slot, request: Mapping[str, Any], patience: float, parcels: Sequence[Parcel] = ()
) -> dict[str, Any]:
    """The worker's answer. ``{name}`` in texts of the request stands for the folder of a parcel."""
    folders = {parcel.name: str(_unpacked(parcel)) for parcel in parcels}
    return _worker(slot).ask(_filled(request, folders), patience)


def facts(slot: Slot) -> dict[str, Any]:
    """What the device is. Raises DeviceMissing."""
    return _worker(slot).facts


def close_workers() -> None:
    """Ends the worker processes of this process, and removes their files."""
    for worker in _workers.values():
        worker.close()
    _workers.clear()
    if _root:
        shutil.rmtree(_root.pop(), ignore_errors=True)


_workers: dict[tuple[str, int], WorkerProcess] = {}
_root: list[Path] = []
_lock = threading.Lock()
atexit.register(close_workers)


def _worker(slot: Slot) -> WorkerProcess:
    with _lock:
        key = (slot.device, slot.threads)
        if key not in _workers:
            where = where_is(device_named(slot.device))
            _workers[key] = WorkerProcess(slot.device, slot.threads, where)
        return _workers[key]


def _unpacked(parcel: Parcel) -> Path:
    with _lock:
        if not _root:
            _root.append(Path(tempfile.mkdtemp(prefix="tilec-tune-")))
        folder = _root[0] / parcel.name
    folder.mkdir(exist_ok=True)
    for name, data in parcel.files.items():
        if not (folder / name).exists():
            write_atomically(folder / name, data)
    return folder


def _filled(value: Any, folders: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        for name, folder in folders.items():
            value = value.replace(f"{{{name}}}", folder)
        return value
    if isinstance(value, Mapping):
        return {key: _filled(one, folders) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_filled(one, folders) for one in value]
    return value
