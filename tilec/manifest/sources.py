"""Where `source = "file.py:attr"` and `"package.module:attr"` point, without importing the kernel."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path

from tilec.errors import ManifestError, Place
from tilec.manifest.problems import suggestion


def source_file(source: str, base: Path) -> Path | None:
    """The Python file of a source text; None when there is none. Importable names may import the packages
    above the module, never the module."""
    where = source.rpartition(":")[0]
    if where.endswith(".py"):
        path = base / where
        return path if path.is_file() else None
    local = base.joinpath(*where.split(".")).with_suffix(".py")
    if local.is_file():
        return local
    try:
        spec = importlib.util.find_spec(where)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec is not None and spec.origin and spec.has_location else None


def source_sha256(source: str, base: Path) -> str:
    """The hash of the kernel's source file; "" when it cannot be read."""
    path = source_file(source, base)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path is not None else ""


def source_text(source: str, base: Path) -> str:
    """The text of the kernel's source file; "" when it cannot be read."""
    path = source_file(source, base)
    return path.read_text(encoding="utf-8", errors="replace") if path is not None else ""


def check_source_file(source: str, base: Path, place: Place, what: str) -> None:
    """Raises ManifestError when the file or module of a source text, which is ``what``, does not exist."""
    if source_file(source, base) is not None:
        return
    where = source.rpartition(":")[0]
    if not where.endswith(".py"):
        raise ManifestError(
            f'{what} module "{where}" cannot be found',
            place=place,
            remedy='install it, or write a path relative to the manifest: "kernels/file.py:name"',
        )
    folder = (base / where).parent
    files = [str(path.relative_to(base)) for path in sorted(folder.glob("*.py"))] if folder.is_dir() else []
    raise ManifestError(
        f'{what} "{where}" does not exist',
        place=place,
        why=f"sources are relative to {base}",
        remedy=suggestion(where, files) if files else "correct the path",
    )
