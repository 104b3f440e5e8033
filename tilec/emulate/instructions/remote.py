"""Stores to shared memory of another block whose bytes a barrier of that block counts."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilec.emulate.group import Group
from tilec.emulate.instructions.mbarriers import at, find, lanes, of_lane
from tilec.emulate.instructions.registry import as_bits, instruction
from tilec.emulate.state.clocks import Hazard, merged

_VECTORS = {"v2": 2, "v4": 4}
_BITS = {f"{kind}{bits}": bits // 8 for kind in "bus" for bits in (32, 64)} | {"f32": 4, "f64": 8}


@instruction("st.async")
def store_counted(g: Group, m: Any, parts: tuple[str, ...], address: Any, *operands: Any) -> None:
    """st.async.shared::cluster.mbarrier::complete_tx::bytes{.vec}.type: who waits for the phase that counts
    the bytes sees them."""
    size, count = _BITS[parts[-1]], next((_VECTORS[part] for part in parts if part in _VECTORS), 1)
    *values, barrier = operands
    columns = [as_bits(value, f"uint{8 * size}", g.count) for value in values[:count]]
    rows = np.ascontiguousarray(np.stack(columns, axis=1)).view(np.uint8)
    for lane, warp in lanes(g, m):
        memory, offset = at(g, of_lane(address, lane))
        found, (own, _) = find(g, of_lane(barrier, lane), warp), at(g, of_lane(barrier, lane))
        if own is not memory:
            raise Hazard(f"st.async to {memory.name} counts its bytes at a barrier of {own.name}")
        if offset % (size * count):
            raise Hazard(f"st.async of {size * count} bytes to byte {offset} of {memory.name}")
        access = g.access(np.asarray([warp], np.int32), agent=found.agent, moment=found.phase + 1)
        memory.write(np.asarray([offset]), rows[lane : lane + 1], access)
        found.bytes -= size * count
        found.known = merged(found.known, g.clocks.sent(warp))
        found.settle(g.clocks)
