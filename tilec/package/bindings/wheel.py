"""A wheel of a written package: ``python/<name>`` with the shared library inside."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from tilec.package.install import scratch_folder
from tilec.package.model import PackageSpec
from tilec.package.templates import render
from tilec.systems import MACOS, WINDOWS

if TYPE_CHECKING:
    from tilec.package.write import BuildReport

_VERSION = re.compile(r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?(\+[a-z0-9]+(\.[a-z0-9]+)*)?")
_GLIBC = re.compile(rb"GLIBC_(\d+)\.(\d+)")
#: How tags call processors.
_APPLE_ARCHS = {"x86_64": "x86_64", "aarch64": "arm64"}
_WINDOWS_ARCHS = {"x86_64": "amd64", "aarch64": "arm64"}
_EPOCH = (1980, 1, 1, 0, 0, 0)


def write_wheel(spec: PackageSpec, report: BuildReport) -> Path:
    """Writes ``python/<name>-<version>-py3-none-<platform>.whl``, with the library of ``report``, of the
    package in ``report.out_dir`` and returns its path. The same package gives the same bytes. Raises
    PackageError when it cannot be written."""
    library = report.library.read_bytes()
    stem = f"{spec.name}-{_version(spec.version)}"
    tag = f"py3-none-{platform_tag(spec, library)}"
    prefix = f"python/{spec.name}/"
    inside = {name.removeprefix("python/"): name for name in report.files if name.startswith(prefix)}
    files = {name: (report.out_dir / where).read_bytes() for name, where in sorted(inside.items())}
    files[f"{spec.name}/{report.library.name}"] = library
    for name, text in metadata_files(spec, tag).items():
        files[f"{stem}.dist-info/{name}"] = text.encode()
    folder = report.out_dir / "python"
    with scratch_folder(folder) as scratch:
        made = scratch / "wheel"
        _write_zip(made, files, f"{stem}.dist-info/RECORD")
        path = folder / f"{stem}-{tag}.whl"
        os.replace(made, path)
    return path


def metadata_files(spec: PackageSpec, tag: str) -> dict[str, str]:
    """What installers read of a wheel, by the names of its files."""
    info = {"METADATA": "wheel_METADATA", "WHEEL": "wheel_WHEEL"}
    return {
        name: render(template, name=spec.name, version=_version(spec.version), tag=tag)
        for name, template in info.items()
    }


def platform_tag(spec: PackageSpec, library: bytes) -> str:
    """``manylinux_<major>_<minor>_<arch>``: the glibc that the host names, or the newer one whose symbols a
    system compiler has linked; ``macosx_<major>_0_<arch>``, ``win_<arch>``."""
    host = spec.host
    if host.system is MACOS:
        return f"macosx_{host.version}_0_{_APPLE_ARCHS[host.arch]}"
    if host.system is WINDOWS:
        return f"win_{_WINDOWS_ARCHS[host.arch]}"
    named = [(int(major), int(minor)) for major, minor in _GLIBC.findall(library)]
    major, minor = max([_numbers(spec.host.version), *named])
    return f"manylinux_{major}_{minor}_{spec.host.arch}"


def _numbers(glibc: str) -> tuple[int, int]:
    major, minor = glibc.split(".")
    return int(major), int(minor)


def _version(version: str) -> str:
    """Wheels take the versions of PEP 440 alone; a library's may be a semantic one."""
    return version if _VERSION.fullmatch(version) else "0.0.0"


def _write_zip(path: Path, files: dict[str, bytes], record: str) -> None:
    rows = [f"{name},sha256={_digest(data)},{len(data)}\n" for name, data in files.items()]
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {**files, record: "".join([*rows, f"{record},,\n"]).encode()}.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = (0o755 if name.endswith((".so", ".dylib", ".dll")) else 0o644) << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED)


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
