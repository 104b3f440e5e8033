"""What no device of a target has, seen in tile IR before anything is lowered."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from tilec.backends.base import backend_of
from tilec.dtypes import lookup
from tilec.errors import Kind, Place, UnsupportedError
from tilec.ir import nodes as ir
from tilec.manifest import Variant
from tilec.targets import Target


def check_limits(kernel: ir.Kernel, targets: Iterable[Target], variant: Variant) -> None:
    """Raises UnsupportedError for a statement whose shared tiles together exceed the shared memory of a block
    on some target: they are in use at the same time, whatever the lowering does. Tiles of other
    statements may share bytes, so that less than this is no promise."""
    statements = [(stmt, _shared_tiles(stmt)) for stmt in ir.walk(kernel.body)]
    stmt, tiles = max(statements, key=lambda one: sum(one[1].values()), default=(None, {}))
    total = sum(tiles.values())
    for target in targets:
        most = backend_of(target).shared_bytes(target)
        if most is None or total <= most or stmt is None:
            continue
        raise UnsupportedError(
            f"{variant.kernel} needs {total} bytes of shared memory at once, a block on {target.name} has "
            f"{most}",
            place=Place(stmt.loc.file, stmt.loc.line) if stmt.loc else variant.place,
            why="bytes of the tiles of this statement: "
            + ", ".join(f"{name} {size}" for name, size in tiles.items()),
            remedy=f"make the tiles smaller in the config for {target.name}, or leave that target out",
            kind=Kind.SHARED_MEMORY,
        )


def _shared_tiles(stmt: ir.Stmt) -> dict[str, int]:
    """Bytes of the shared tiles that a statement reads and writes."""
    from tilec.ir.traits import read, written

    used = (*read(stmt), *written(stmt))
    return {str(buffer.name): _bytes(buffer) for buffer in used if str(buffer.scope()).startswith("shared")}


def _bytes(buffer: Any) -> int:
    """Of a tile with extents that are known; 0 for others."""
    from tilec.ir.exprs import int_value

    extents = [int_value(extent) for extent in buffer.shape]
    known = [extent for extent in extents if extent is not None]
    return math.prod(known) * lookup(str(buffer.dtype)).bits // 8 if len(known) == len(extents) else 0
