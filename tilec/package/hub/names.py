"""What a package and its kernels are called on the kernel hub."""

from __future__ import annotations

import re

from tilec.errors import PackageError, Place
from tilec.package.bindings.python import module_name
from tilec.package.model import KernelRecord, PackageSpec

#: Names that the module of a build uses itself.
_RESERVED = frozenset("add_op_namespace_prefix annotations function layers library ops".split())
_NAME = re.compile(r"[a-z][a-z0-9-]*[a-z0-9]")


def hub_name(name: str) -> str:
    """The name of a package as the hub writes it. Raises PackageError where it has none."""
    text = name.lower().replace("_", "-").strip("-")
    if not _NAME.fullmatch(text):
        raise PackageError(
            f"the package {name!r} has no name on the kernel hub",
            place=Place(key="package.name"),
            why="names there have two characters or more: small letters, digits and dashes, a letter first",
            remedy="rename the package, or build without --hub",
        )
    return text


def hub_version(spec: PackageSpec) -> int:
    """The hub counts versions of an interface: the first number of a library's version."""
    digits = re.match(r"\d+", spec.version)
    return int(digits[0]) if digits else 0


def identity(spec: PackageSpec, build_id: str) -> str:
    """A name that no other build has: of the module, and of the namespace of its operators."""
    return f"_{spec.name}_{build_id}"


def by_name(spec: PackageSpec) -> list[KernelRecord]:
    """The kernels, sorted."""
    return sorted(spec.kernels, key=lambda kernel: kernel.name)


def function_name(kernel: KernelRecord) -> str:
    """What the module of a build calls a kernel."""
    return module_name(kernel.name, _RESERVED)
