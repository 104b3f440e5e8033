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
    remote,
    shuffles,
    tcgen05,
    tma,
    wgmma,
)
