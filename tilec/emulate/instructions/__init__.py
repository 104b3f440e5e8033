"""Instructions by family, one Python function each."""

from __future__ import annotations

from tilec.emulate.instructions import (  # noqa: F401  (registers the families)
    arithmetic,
    atomics,
    barriers,
    bulk_reduce,
    clusters,
    convert,
    copies,
    lines,
    mbarriers,
    memory,
    mma,
    shuffles,
    tma,
    wgmma,
)
from tilec.emulate.instructions.registry import (
    Entry,
    Function,
    find,
    find_function,
    float_literal,
    from_register,
    names,
)

function = find_function

__all__ = ["Entry", "Function", "find", "float_literal", "from_register", "function", "names"]
