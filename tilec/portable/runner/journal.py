"""A file of records, one line of JSON each, that survives a kill at any moment.

A record is on the disk before `Journal.add` returns. A line that was cut off by a kill is left out when the
file is read, and ended before the next one is written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Journal:
    """The records of ``path``, which is made with its folders when the first one is added."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    def read(self) -> list[dict[str, Any]]:
        """All whole records, in order."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return []
        return [record for line in data.split(b"\n") if (record := _record(line)) is not None]

    def add(self, record: Mapping[str, Any]) -> None:
        """Writes one record. Raises OSError where the disk is full or cannot be written; then nothing of it
        is left."""
        file = self._opened()
        end = os.lseek(file, 0, os.SEEK_END)
        data = json.dumps(record).encode() + b"\n"
        try:
            if os.write(file, data) != len(data):
                raise OSError(28, "the disk is full", str(self.path))
            os.fsync(file)
        except OSError:
            os.ftruncate(file, end)
            raise

    def close(self) -> None:
        """Closes the file; `add` opens it again."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _opened(self) -> int:
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
            self._end_last_line(self._file)
        return self._file

    def _end_last_line(self, file: int) -> None:
        size = os.lseek(file, 0, os.SEEK_END)
        if size and os.pread(file, 1, size - 1) != b"\n":
            os.write(file, b"\n")


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
