"""Remembering which files a package consists of, so that an unchanged one is not written again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilec.cache import Store, digest, toolchain_digest
from tilec.package.model import PackageSpec
from tilec.settings import read_settings

if TYPE_CHECKING:
    from tilec.package.write import BuildReport

_KIND = "package"


def find_package(
    store: Store, specs: Sequence[PackageSpec], out_dir: Path, static: bool
) -> tuple[BuildReport, ...] | None:
    """The reports of the package in ``out_dir``, when every file there is what a build would write now."""
    data = store.get(_KIND, _key(specs, static))
    if data is None:
        return None
    receipt = json.loads(data)
    if any(_sha256(out_dir / name) != sha256 for name, sha256 in receipt["files"].items()):
        return None
    return tuple(_report(fields, out_dir) for fields in receipt["reports"])


def _report(fields: dict[str, Any], out_dir: Path) -> BuildReport:
    from tilec.package.write import BuildReport

    return BuildReport(
        **{
            **fields,
            "out_dir": out_dir,
            "library": out_dir / fields["library"],
            "archive": out_dir / fields["archive"] if fields["archive"] else None,
            "files": tuple(fields["files"]),
        }
    )


def keep_package(
    store: Store, specs: Sequence[PackageSpec], static: bool, reports: Sequence[BuildReport]
) -> None:
    """Stores the receipt of a package that was just written. Raises OSError when it cannot."""
    files = {name: _sha256(reports[0].out_dir / name) for name in reports[0].files}
    text = json.dumps({"reports": list(map(_fields, reports)), "files": files})
    store.put(_KIND, _key(specs, static), text.encode())


def _fields(report: BuildReport) -> dict[str, Any]:
    return {
        **asdict(report),
        "out_dir": "",
        "library": _below(report.library, report.out_dir),
        "archive": _below(report.archive, report.out_dir) if report.archive else None,
    }


def _key(specs: Sequence[PackageSpec], static: bool) -> str:
    """Everything that decides the bytes of a package; machine code counts through its hash."""
    from tilec.package.library.runtime import runtime_bytes

    text = json.dumps([asdict(_without_code(spec)) for spec in specs], default=str)
    return digest(toolchain_digest(), runtime_bytes(), text, read_settings().cc or "", str(static))


def _without_code(spec: PackageSpec) -> PackageSpec:
    kernels = tuple(
        replace(
            kernel,
            variants=tuple(replace(one, image=replace(one.image, code=b"")) for one in kernel.variants),
        )
        for kernel in spec.kernels
    )
    return replace(spec, kernels=kernels)


def _below(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def _sha256(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None
