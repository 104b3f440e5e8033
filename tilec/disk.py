"""Disks that are full, and folders that cannot be written: said as what they are, with the place."""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tilec.errors import EnvironmentError_, PackageError, Place
from tilec.settings import zig_cache

_FULL = (errno.ENOSPC, errno.EDQUOT)
#: As libc says it, and as zig names the errors.
_SAID = re.compile(r"No space left on device|Disk quota exceeded|\bNoSpaceLeft\b|\bDiskQuota\b")
_MIB = 1 << 20


def says_full(text: str) -> str:
    """The line of a program's output that says that a disk is full; empty where none does."""
    return next((line.strip() for line in text.splitlines() if _SAID.search(line)), "")


def seems_full(folders: Iterable[Path]) -> str:
    """Why a program ended that wrote to ``folders`` and said nothing, as LLVM does where it cannot write;
    empty where each has room."""
    return os.strerror(errno.ENOSPC) if any(_free(folder) < _MIB for folder in folders) else ""


def full_disk(doing: str, folders: Iterable[Path], why: str) -> EnvironmentError_:
    """The error of ``doing`` on a full disk. Of ``folders``, which it may have written to, the one with the
    least room is named."""
    free, folder = min((_free(folder), folder) for folder in folders)
    return EnvironmentError_(
        f"{doing} failed: the disk is full",
        place=Place(str(folder)),
        why=f"{why}; {free / _MIB:.1f} MiB are free there",
        remedy="make room, or choose other places: -o for the package, TILEC_CACHE_DIR for the cache, "
        "TMPDIR and ZIG_GLOBAL_CACHE_DIR for what compilers write",
    )


def compilers_folders() -> list[Path]:
    """Where compilers write beside their output: temporary files, and zig's cache."""
    return [Path(tempfile.gettempdir()), zig_cache()]


@contextmanager
def full_disks_said(doing: str, folder: Path) -> Iterator[None]:
    """An OSError of a full disk in the block is an EnvironmentError_; other ones stay. ``folder``: where the
    error names none."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        place = Path(error.filename).parent if isinstance(error.filename, str) else folder
        raise full_disk(doing, [place], error.strerror or str(error)) from error


def require_room(doing: str, folder: Path, size: int = _MIB) -> None:
    """Raises EnvironmentError_ where ``size`` bytes do not fit: LLVM that cannot write ends the process."""
    if _free(folder) < size:
        raise full_disk(doing, [folder], os.strerror(errno.ENOSPC))


def require_writable(folder: Path, option: str = "") -> None:
    """Raises PackageError where an output folder, which somebody gave by an ``option``, cannot be written or
    made; asked before work begins."""
    try:
        with tempfile.TemporaryFile(dir=_there(folder)):
            return
    except OSError as error:
        raise PackageError(
            f"the output folder {folder} cannot be written",
            place=Place(str(folder)),
            why=error.strerror or str(error),
            remedy=f"choose another{option}, or make it writable",
        ) from error


def _free(folder: Path) -> int:
    """Bytes, of the disk that ``folder`` is or would be on."""
    return shutil.disk_usage(_there(folder)).free


def _there(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    return next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
