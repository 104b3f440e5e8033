"""Puts a package into its folder: made aside, renamed into place file by file."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tilec.disk import full_disks_said
from tilec.errors import PackageError, Place

_PREFIX, _LOCK = ".tilec-", "lock"


@contextlib.contextmanager
def scratch_folder(out_dir: Path) -> Iterator[Path]:
    """A folder on the file system of ``out_dir``, removed at the end. What a killed build left there goes
    too. File errors become PackageErrors, those of a full disk EnvironmentErrors."""
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(_made(out_dir))
            _remove_abandoned(out_dir)
            stack.enter_context(full_disks_said(f"writing to {out_dir}", out_dir))
            yield _locked_folder(stack, out_dir)
    except OSError as error:
        raise PackageError(
            f"the package cannot be written to {out_dir}",
            place=Place(file=str(out_dir)),
            why=error.strerror or str(error),
            remedy="choose a folder with -o that can be written and has space",
        ) from error


@contextlib.contextmanager
def _made(folder: Path) -> Iterator[None]:
    """Makes a folder. What had to be made for it goes again where the block fails and leaves it empty."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            for each in missing:
                each.rmdir()
        raise


def _locked_folder(stack: contextlib.ExitStack, out_dir: Path) -> Path:
    """A folder that nobody takes for abandoned. One that was, between its making and its locking, is made
    again: then the file that got locked has no name any more."""
    while True:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix=_PREFIX, dir=out_dir))
        lock = stack.enter_context(open(Path(name, _LOCK), "w"))  # noqa: SIM115 (the stack closes it)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.fstat(lock.fileno()).st_nlink:
            return Path(name)


def install(files: Sequence[tuple[Path, str]], out_dir: Path) -> None:
    """Renames every file (path, place below ``out_dir``) in the given order; all of them lie on the file
    system of ``out_dir`` already, so that no space can run out half-way."""
    for path, where in files:
        target = out_dir / where
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(path, target)


def _remove_abandoned(out_dir: Path) -> None:
    """Scratch folders whose lock nobody holds any more."""
    for folder in out_dir.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError), open(folder / _LOCK, "r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
