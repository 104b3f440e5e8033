"""What warps have read and TMA overwrites: behind an arrival its load may be under way."""

from __future__ import annotations

import numpy as np
import pytest

from tilec.emulate.state.clocks import Agents, Clocks, Hazard
from tilec.emulate.state.races import Access, Shadow

READER, LOADER = np.asarray([0]), np.asarray([1])
BYTES = np.asarray([0])


class Slot:
    """16 bytes that one warp reads and another has TMA write, beside cp.async."""

    def __init__(self) -> None:
        agents = Agents(2, ["warp 0", "warp 1"])
        self.tma = agents.of("tma", "TMA")
        self.clocks = Clocks(agents)
        self.clocks.copies = True
        self.shadow = Shadow("shared memory", 16, written=True, is_global=False)

    def read(self) -> None:
        self.shadow.read(BYTES, 16, Access(READER, self.clocks, site=0, block=0))

    def arrive(self) -> None:
        """The reader's barrier, which the loader has waited for."""
        self.clocks.join(LOADER, self.clocks.snapshot(READER))
        self.clocks.tick(READER)

    def overwrite(self) -> None:
        moment = self.clocks.advance(self.tma)
        access = Access(LOADER, self.clocks, 1, 0, self.tma, moment, is_async_proxy=True)
        self.shadow.write(BYTES, 16, access, lambda: np.asarray([False]))


def fenced(clocks: Clocks) -> None:
    """A proxy fence of the reader."""
    clocks.fence(READER)
    clocks.tick(READER)


def test_a_load_that_is_done_may_be_overwritten() -> None:
    slot = Slot()
    slot.read()
    fenced(slot.clocks)
    slot.arrive()
    slot.overwrite()


def test_loads_that_no_copies_hold_up_are_done_at_the_barrier() -> None:
    slot = Slot()
    slot.clocks.copies = False
    slot.read()
    slot.arrive()
    slot.overwrite()


def test_an_arrival_alone_is_not_enough() -> None:
    slot = Slot()
    slot.read()
    slot.arrive()
    with pytest.raises(Hazard, match="which warp 0 read with no proxy fence between"):
        slot.overwrite()


def test_a_fence_of_the_loader_does_not_end_loads_of_others() -> None:
    slot = Slot()
    slot.read()
    slot.arrive()
    slot.clocks.fence(LOADER)
    with pytest.raises(Hazard, match="no proxy fence"):
        slot.overwrite()


def test_a_read_behind_the_fence_needs_another_one() -> None:
    slot = Slot()
    fenced(slot.clocks)
    slot.read()
    slot.arrive()
    with pytest.raises(Hazard, match="no proxy fence"):
        slot.overwrite()
