"""How much a block of a product loads: what early starts are decided by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm.ir import Var

from tilec.backends.cuda.matmul.emit.early import loads_early
from tilec.backends.cuda.matmul.nodes import RingDrain
from tilec.errors import UnsupportedError
from tilec.ir.exprs import inlined
from tilec.ir.exprs import walk as parts_of
from tilec.ir.nodes import walk
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.emission.parameters import names, spelled
from tilec.lowering.emission.texts import int_text

if TYPE_CHECKING:
    from tilec.backends.cuda.matmul.nodes import MatmulRoles
    from tilec.ir.nodes import Kernel


def loaded_bytes(roles: MatmulRoles, kernel: Kernel) -> str:
    """Those of a block for a tile, as an integer text. Empty where its trips depend on more than dims or are
    no plain arithmetic, and where loads that do not wait are worth an early start anyway."""
    drain = next(stmt for stmt in walk(roles.consumer) if isinstance(stmt, RingDrain))
    bound = values_of(roles.consumer)
    trips, known = spelled(inlined(drain.trips, bound), kernel), names(kernel)
    if loads_early(roles) or any(isinstance(part, Var) and part not in known for part in parts_of(trips)):
        return ""
    try:
        text = int_text(trips, known)
    except UnsupportedError:
        return ""
    return f"({text}) * {drain.ring.bytes} // {roles.order.split}"
