"""The typed header ``<name>.h``."""

from __future__ import annotations

from tilec.package.bindings import doors
from tilec.package.model import PackageSpec
from tilec.package.templates import render
from tilec.package.text import escape


def header_source(spec: PackageSpec, build_id: str) -> str:
    """The header of a library; ``spec`` has its kernels sorted by name."""
    return render(
        "header.h",
        name=spec.name,
        guard=spec.name.upper(),
        version=escape.c_comment(spec.version),
        version_string=escape.c_string(spec.version),
        build_id=build_id,
        kernels="".join(doors.prototype(spec, kernel) for kernel in spec.kernels),
    )
