"""Schedule keys of a config that no launch of a kernel can obey, on any of its targets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tilec.errors import Remark
from tilec.families import families
from tilec.ir.schedule import KEYS, OF_CPUS

if TYPE_CHECKING:
    from tilec.ir.nodes import Kernel
    from tilec.manifest import Plan, Variant

#: What launches without a product are.
_PLAIN = "threads"


def remarks_on_keys(kernel: Kernel, variant: Variant) -> Iterator[Remark]:
    """The keys that are for products, at the line of each, where a kernel has none."""
    if _has_product(kernel):
        return
    for name in _asked(kernel, variant):
        if _PLAIN not in KEYS[name].families:
            yield _remark(name, variant, f"{variant.kernel}, which has no product")


def has_cpus_alone(plan: Plan) -> bool:
    """Whether a manifest with kernels of its own is for CPUs alone, whatever was chosen of its targets."""
    others = (plan.manifest.targets.of(family.name) for family in families() if not family.on_host)
    return plan.manifest.extends is None and not any(others)


def idle_on_cpus(kernel: Kernel, variant: Variant) -> tuple[str, ...]:
    """The keys of a kernel with a product that CPUs do not obey; `remarks_on_keys` has those of others."""
    if not _has_product(kernel):
        return ()
    return tuple(name for name in _asked(kernel, variant) if name not in OF_CPUS)


def remarks_on_cpus(idle: Iterable[str], variant: Variant) -> Iterator[Remark]:
    """Those keys, at the line of each, of a manifest that is for CPUs alone."""
    for name in idle:
        yield _remark(name, variant, "CPUs, and there are no other targets")


def _has_product(kernel: Kernel) -> bool:
    from tilec.ir import nodes as ir

    return any(isinstance(stmt, ir.PRODUCTS) for launch in kernel.launches for stmt in ir.walk(launch.body))


def _asked(kernel: Kernel, variant: Variant) -> list[str]:
    """The schedule keys of the config; those that the factory takes are its parameters."""
    given = dict.fromkeys(name for launch in kernel.launches for name in launch.schedule.given)
    return [name for name in given if name in variant.config and name in KEYS]


def _remark(name: str, variant: Variant, where: str) -> Remark:
    what = f"{name} = {variant.config[name]!r} has no effect on {where}"
    return Remark(what, variant.value_places.get(name, variant.place), f"leave out {name}")
