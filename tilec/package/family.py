"""What a package holds of a family of targets: the C of its variants, and what the runtime adds for it.

A package looks families up in the table of `tilec.families`, which lies below it; nobody passes them in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from tilec.codegen.image import DeviceLaunch
from tilec.families import Family, families, family_of

if TYPE_CHECKING:
    from tilec.package.model import KernelRecord, PackageSpec, VariantRecord
    from tilec.package.text.size_functions import TextFunctions
    from tilec.targets import Target


class PackageFamily(Family):
    """A family with what the generated tables need.

    ``device_type`` is the constant of dlpack.h for its devices. ``has_entries``: a variant is a relocatable
    object with a C function for each launch, as `tilec.codegen.image` describes; of other families the
    package keeps bytes that the runtime hands to a driver. ``runtime`` is C that defines ``<name>_family``
    (runtime_c/src/devices/family.h); the one of CPUs is part of every library."""

    device_type: str
    has_entries: bool = True
    runtime: str

    def arch_facts(self, spec: PackageSpec, target: Target) -> tuple[int, ...]:
        """What the runtime knows a target by beside its bits: arch_record.facts, at most four."""
        return ()

    def read_launch(self, fields: Mapping[str, Any]) -> DeviceLaunch:
        """`LaunchCode.gpu` from what JSON made of its fields."""
        return DeviceLaunch(**{**fields, "cluster": tuple(fields["cluster"])})

    def check(self, kernel: KernelRecord, variant: VariantRecord) -> None:
        """Raises PackageError for a variant that the runtime of the family has no room for."""

    def files(self, spec: PackageSpec) -> dict[str, bytes]:
        """What `sections` reads, by file name."""
        return {}

    def sections(self, spec: PackageSpec) -> str:
        """Assembly that puts bytes of the family into the library."""
        return ""

    def declarations(self, spec: PackageSpec) -> str:
        """C in front of all kernels."""
        return ""

    def codes(self, spec: PackageSpec, kernel: KernelRecord, prefix: str, texts: TextFunctions) -> str:
        """C in front of a kernel's variants: what `code` points to. The public records of launches are
        ``<prefix>_launch_infos``."""
        return ""

    def code(self, kernel: KernelRecord, prefix: str, number: int) -> str:
        """variant_record.code of variant ``number``, one of the family's: a pointer."""
        return "NULL"


def image_section(family: str) -> str:
    """The section of a library where a family keeps images."""
    return f".tilec.{family}"


def package_family(target: Target) -> PackageFamily:
    """The family of a target."""
    return cast("PackageFamily", family_of(target))


def family_of_variant(variant: VariantRecord) -> PackageFamily:
    """The family that a variant has code for."""
    from tilec.targets import parse_target

    return package_family(parse_target(variant.target))


def all_variants(spec: PackageSpec) -> Iterable[VariantRecord]:
    """The variants of all kernels, in order."""
    return (variant for kernel in spec.kernels for variant in kernel.variants)


def families_in(spec: PackageSpec) -> tuple[PackageFamily, ...]:
    """The families that a library has code of."""
    found = {family_of_variant(variant).name for variant in all_variants(spec)}
    return tuple(cast("PackageFamily", each) for each in families() if each.name in found)


def entry_objects(spec: PackageSpec) -> tuple[bytes, ...]:
    """The objects of all variants with entries, equal ones once."""
    codes = (one.image.code for one in all_variants(spec) if family_of_variant(one).has_entries)
    return tuple(dict.fromkeys(codes))
