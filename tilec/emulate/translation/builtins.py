"""What code generation itself has for CUDA beside instructions: barriers of block and cluster, waits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilec.backends.cuda.device.helper import Helper, Lanes
from tilec.errors import UnsupportedError


def _block_barrier(lanes: Lanes) -> Iterator[str]:
    yield from lanes.cuda("__syncthreads")


def _cluster_barrier(lanes: Lanes) -> Iterator[str]:
    lanes.ptx("barrier.cluster.arrive.aligned")
    yield from lanes.ptx("barrier.cluster.wait.aligned")


def _mbarrier_wait(lanes: Lanes, barrier: Any, parity: Any) -> Iterator[str]:
    yield from lanes.ptx("mbarrier.try_wait.parity.acquire.cta.shared::cta.b64", barrier, parity)


#: By operator; of their texts only the signature counts.
BUILTINS = {
    "tirx.cuda.cta_sync": Helper("sync", "void sync()", _block_barrier),
    "tirx.cuda.cluster_sync": Helper("sync", "void sync()", _cluster_barrier),
    "tirx.cuda.mbarrier_wait": Helper("wait", "void wait(void* barrier, int parity)", _mbarrier_wait),
    "tirx.cuda.cvta_generic_to_shared": Helper(
        "shared", "unsigned shared(void* place)", lambda lanes, place: lanes.shared(place)
    ),
}


def builtin(name: str) -> Helper:
    """The meaning of an operator. UnsupportedError for one that the emulator does not know."""
    if name not in BUILTINS:
        raise UnsupportedError(
            f"the emulator does not know {name}", remedy="add it to tilec/emulate/translation/builtins.py"
        )
    return BUILTINS[name]
