"""Schedule keys of a config that no launch of a kernel can obey, on any target."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tilec.errors import Remark
from tilec.ir.schedule import KEYS

if TYPE_CHECKING:
    from tilec.ir.nodes import Kernel
    from tilec.manifest import Variant

#: What launches without a product are.
_PLAIN = "threads"


def remarks_on_keys(kernel: Kernel, variant: Variant) -> Iterator[Remark]:
    """The keys that are for products, at the line of each, where a kernel has none."""
    from tilec.ir import nodes as ir

    if any(isinstance(stmt, ir.PRODUCTS) for launch in kernel.launches for stmt in ir.walk(launch.body)):
        return
    asked = dict.fromkeys(name for launch in kernel.launches for name in launch.schedule.given)
    for name in asked:
        if name in variant.config and _PLAIN not in KEYS[name].families:
            what = (
                f"{name} = {variant.config[name]!r} has no effect on {variant.kernel}, which has no product"
            )
            yield Remark(what, variant.value_places.get(name, variant.place), f"leave out {name}")
