"""Who touched which bytes, and whether one access was known to be over before the next.

The knowledge is in `tilec.emulate.state.clocks`.
A `Shadow` keeps, for each granule of a memory, the last write and every agent's last read; a granule starts
at 16 bytes and is split when an access cuts one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tilec.emulate.state.clocks import Clocks, Hazard, Told

_FIRST_GRANULE = 16
_NEVER = -1
_MANY = -2
_EARLIER = -3


@dataclass(frozen=True)
class Access:
    """Who accesses: ``warps`` per item, the agent that carries it out (None: each warp itself) at ``moment``,
    through the asynchronous proxy or not; ``site`` is the statement. Atomic accesses do not race with
    each other; ``overwrites``: one that stores without looking."""

    warps: np.ndarray
    clocks: Clocks
    site: int
    block: int
    agent: int | None = None
    moment: int = 0
    is_async_proxy: bool = False
    is_atomic: bool = False
    overwrites: bool = False


_PER_GRANULE = (
    "writer", "moment", "site", "atomic", "echoed", "spoiled", "read_site", "write_block", "read_block",
)  # fmt: skip


class Shadow:
    """The accesses of one memory of ``size`` bytes. ``written``: its contents are there from the start.
    ``echoes`` are further writers of the value that a granule has, ``spoiled`` marks copies of what nobody
    wrote."""

    def __init__(self, name: str, size: int, written: bool, is_global: bool) -> None:
        self.name, self.size, self.is_global = name, size, is_global
        self.granule = _FIRST_GRANULE
        count = -(-size // self.granule)
        self.writer = np.full(count, _MANY if written else _NEVER, np.int32)
        self.moment = np.zeros(count, np.int32)
        self.site = np.zeros(count, np.int32)
        self.atomic = np.zeros(count, np.bool_)
        self.readers: list[int] = []
        self.reads = np.zeros((0, count), np.int32)
        self.read_site = np.zeros(count, np.int32)
        self.echoes: dict[int, list[tuple[int, int]]] = {}
        self.echoed = np.zeros(count, np.bool_)
        self.spoiled = np.zeros(count, np.bool_)
        self.has_spoiled = False
        self.write_block = np.full(count, _NEVER, np.int32)
        self.read_block = np.full(count, _NEVER, np.int32)
        #: The number of each block's clocks, and what atomic operations at an offset tell.
        self.clocks_of: dict[int, int] = {}
        self.told: dict[int, Told] = {}

    def has_gaps(self) -> bool:
        """Whether nothing has written some of it."""
        return bool((self.writer == _NEVER).any())

    def keep_gaps(self, before: Shadow) -> None:
        """What nothing had written before stays so."""
        if before.granule < self.granule:
            self._split(before.granule)
        self.writer[before.writer == _NEVER] = _NEVER

    def keep_earlier(self, before: Shadow) -> None:
        """What earlier launches have written must be waited for."""
        if before.granule < self.granule:
            self._split(before.granule)
        self.writer[(before.writer >= 0) | (before.writer == _EARLIER)] = _EARLIER

    # ---- granules ----

    def _split(self, granule: int) -> None:
        times = self.granule // granule
        for name in _PER_GRANULE:
            setattr(self, name, np.repeat(getattr(self, name), times))
        self.echoes = {
            place * times + step: list(known) for place, known in self.echoes.items() for step in range(times)
        }
        self.reads = np.repeat(self.reads, times, axis=1)
        self.granule = granule

    def places(self, offsets: np.ndarray, size: int) -> tuple[np.ndarray, int]:
        """The granules of accesses of ``size`` bytes each, and how many each has."""
        smallest = min(size & -size, self.granule)
        joined = int(np.bitwise_or.reduce(offsets)) | smallest
        smallest = min(smallest, joined & -joined)
        if smallest < self.granule:
            self._split(smallest)
        first = offsets // self.granule
        each = size // self.granule
        if each == 1:
            return first, 1
        return (first[:, None] + np.arange(each)).reshape(-1), each

    def _row(self, agent: int) -> int:
        if agent not in self.readers:
            self.readers.append(agent)
            self.reads = np.vstack([self.reads, np.zeros((1, self.reads.shape[1]), np.int32)])
        return self.readers.index(agent)

    # ---- accesses ----

    def read(self, offsets: np.ndarray, size: int, access: Access) -> None:
        """Checks and notes reads of ``size`` bytes at each offset."""
        at, each = self.places(offsets, size)
        warps = np.repeat(access.warps, each) if each > 1 else access.warps
        self._check_written(at, warps)
        apart = self._of_other_blocks(at, warps, access)
        if apart.any():
            self._blocks_race(int(at[np.flatnonzero(apart)[0]]), access, "written", self.site)
        late = self._late_writes(at, warps, access)
        if late.any():
            self._race(int(np.flatnonzero(late)[0]), at, warps, access, "reads")
        if access.is_atomic:
            self._tell(offsets, access)
            return
        if access.is_async_proxy:
            self._check_fenced(at, warps, access, "reads")
        self.read_site[at] = access.site
        if access.agent is not None:
            row = self._row(access.agent)
            self.reads[row, at] = access.moment
        else:
            own = access.clocks.seen[warps, warps]
            unique = np.unique(access.warps)
            rows = np.zeros(int(unique[-1]) + 1, np.int64)
            rows[unique] = [self._row(int(warp)) for warp in unique]
            self.reads[rows[warps], at] = own
        if self.is_global:
            self._note_read_block(at, access)

    def write(
        self, offsets: np.ndarray, size: int, access: Access, unchanged: Callable[[], np.ndarray]
    ) -> np.ndarray:
        """Checks and notes writes of ``size`` bytes at each offset. ``unchanged`` says which of them leave
        the bytes as they are: these need no order, those of other blocks neither. Gives the offsets that
        another warp writes at the same time."""
        at, each = self.places(offsets, size)
        warps = np.repeat(access.warps, each) if each > 1 else access.warps
        if access.is_atomic and not access.overwrites:
            self._check_written(at, warps)
        if access.is_atomic:
            self._tell(offsets, access, writes=True)
        apart = self._of_other_blocks(at, warps, access)
        late = self._late_writes(at, warps, access) & ~apart
        reads = self._late_reads(at, warps, access)
        late_reads = np.zeros(len(at), np.bool_) if reads is None else reads.any(axis=0)
        agents = warps if access.agent is None else np.full(len(at), access.agent, np.int32)
        moments = np.broadcast_to(
            access.clocks.seen[warps, warps] if access.agent is None else access.moment, len(at)
        )
        if apart.any() or late.any() or late_reads.any():
            changed = ~np.repeat(unchanged(), each)
            if (apart & changed).any():
                self._blocks_race(int(at[np.flatnonzero(apart & changed)[0]]), access, "written", self.site)
            if (late & changed).any():
                self._race(int(np.flatnonzero(late & changed)[0]), at, warps, access, "writes")
            if reads is not None and (late_reads & changed).any():
                self._race_with_read(reads & changed, at, warps, access)
            again = late | late_reads
            self._echo(at[again], agents[again], moments[again])
            again |= apart
            at, agents, moments, warps = (part[~again] for part in (at, agents, moments, warps))
            offsets = np.repeat(offsets, each)[~again]
            each = 1
        if access.is_async_proxy:
            self._check_fenced(at, warps, access, "writes")
            self._check_reads_fenced(at, warps, access)
        self._note_write(at, agents, moments, access)
        if access.agent is not None or access.is_atomic:
            return offsets[:0]
        clash = self.writer[at] != agents
        self._echo(at[clash], agents[clash], moments[clash])
        return np.asarray(np.repeat(offsets, each)[clash])

    def _note_write(self, at: np.ndarray, agents: np.ndarray, moments: np.ndarray, access: Access) -> None:
        if self.echoes:
            for place in np.unique(at[self.echoed[at]]).tolist():
                del self.echoes[place]
            self.echoed[at] = False
        if self.has_spoiled:
            self.spoiled[at] = False
        self.writer[at] = agents
        self.moment[at] = moments
        self.site[at] = access.site
        self.atomic[at] = access.is_atomic
        if self.is_global:
            self.write_block[at] = access.block
            self.clocks_of[access.block] = access.clocks.number
        if self.is_global and not access.is_atomic:  # who comes behind it comes behind the reads before it
            self.read_block[at] = _NEVER
            self.reads[:, at] = 0

    def _tell(self, offsets: np.ndarray, access: Access, writes: bool = False) -> None:
        """Atomic operations, one after the other, hear what those in front of them at their offset told; one
        that ``writes`` tells those behind it what its warp knew at its last fence, too."""
        if not self.is_global:
            return
        tells = {warp: access.clocks.tells(warp) for warp in access.warps.tolist()} if writes else {}
        for warp, offset in zip(access.warps.tolist(), offsets.tolist(), strict=True):
            told = {} if access.overwrites else self.told.get(offset, {})
            access.clocks.hear(warp, told)
            if writes:
                own = tells[warp]
                self.told[offset] = {key: max(told.get(key, 0), own.get(key, 0)) for key in {**told, **own}}

    def _echo(self, at: np.ndarray, agents: np.ndarray, moments: np.ndarray) -> None:
        """Notes further writers of the same value: who knows one of them may read it."""
        self.echoed[at] = True
        for place, agent, moment in zip(at.tolist(), agents.tolist(), moments.tolist(), strict=True):
            self.echoes.setdefault(place, []).append((agent, moment))

    # ---- copies of what nobody wrote ----

    def spoil(self, offsets: np.ndarray, size: int) -> None:
        """These places hold copies of what nobody wrote."""
        if len(offsets):
            self.has_spoiled = True
            self.spoiled[self.places(offsets, size)[0]] = True

    def is_spoiled(self, offsets: np.ndarray, size: int) -> np.ndarray:
        """Which of these places hold such copies."""
        at, each = self.places(offsets, size)
        return np.asarray(self.spoiled[at].reshape(-1, each).any(axis=1))

    # ---- checks ----

    def _check_written(self, at: np.ndarray, warps: np.ndarray) -> None:
        missing = np.flatnonzero(self.writer[at] == _NEVER)
        if len(missing):
            where = int(missing[0])
            raise Hazard(
                f"warp {int(warps[where])} reads {self._bytes(int(at[where]))}, which nothing has written",
                remedy="write it first, or wait for what writes it",
            )

    def _late_writes(self, at: np.ndarray, warps: np.ndarray, access: Access) -> np.ndarray:
        """Where the last write is not known to be over."""
        clocks, writers = access.clocks, self.writer[at]
        known = writers >= 0
        if access.is_atomic:
            known &= ~self.atomic[at]
        if self.is_global:
            known &= self.write_block[at] == access.block
        clocks.ensure()
        late: np.ndarray = known & (clocks.seen[warps, np.where(known, writers, 0)] < self.moment[at])
        if clocks.earlier is not None:
            late |= (writers == _EARLIER) & (clocks.seen[warps, clocks.earlier] == 0)
        if self.echoes and late.any():
            for item in np.flatnonzero(late & self.echoed[at]).tolist():
                late[item] = not self._knows_echo(clocks.seen[warps[item]], int(at[item]))
        return late

    def _of_other_blocks(self, at: np.ndarray, warps: np.ndarray, access: Access) -> np.ndarray:
        """Where another block of the launch wrote last, and nothing has told the warp that it is over."""
        if not self.is_global:
            return np.zeros(len(at), np.bool_)
        known = self.writer[at] >= 0
        if access.is_atomic:
            known &= ~self.atomic[at]
        apart = np.asarray(known & (self.write_block[at] != access.block))
        for item in np.flatnonzero(apart).tolist():
            apart[item] = not self._was_told(int(at[item]), int(warps[item]), access.clocks)
        return apart

    def _was_told(self, place: int, warp: int, clocks: Clocks) -> bool:
        """Whether a warp knows that the last write at a place, another block's, is over."""
        number, agent = self.clocks_of[int(self.write_block[place])], int(self.writer[place])
        own = agent if number == clocks.number else clocks.agents.known((number, agent))
        return own is not None and bool(clocks.seen[warp, own] >= self.moment[place])

    def _was_told_of_reads(self, place: int, warp: int, clocks: Clocks) -> bool:
        """Whether a warp knows that what another block has read at a place is over."""
        block = int(self.read_block[place])
        if block == _MANY:
            return False
        number, moments = self.clocks_of[block], self.reads[:, place].tolist()
        for reader, moment in zip(self.readers, moments, strict=True):
            own = reader if number == clocks.number else clocks.agents.known((number, reader))
            if moment and (own is None or clocks.seen[warp, own] < moment):
                return False
        return True

    def _knows_echo(self, known: np.ndarray, place: int) -> bool:
        return any(known[agent] >= moment for agent, moment in self.echoes[place])

    def _check_fenced(self, at: np.ndarray, warps: np.ndarray, access: Access, verb: str) -> None:
        """Hazard where a plain write has not been made visible to the asynchronous proxy."""
        clocks, writers = access.clocks, self.writer[at]
        plain = (writers >= 0) & (writers < clocks.agents.warps)
        if not plain.any():
            return
        plain &= clocks.proxied[warps, np.where(plain, writers, 0)] < self.moment[at]
        if self.echoes:
            for item in np.flatnonzero(plain & self.echoed[at]).tolist():
                plain[item] = not self._knows_echo(clocks.proxied[warps[item]], int(at[item]))
        if plain.any():
            self._unfenced(int(np.flatnonzero(plain)[0]), at, access, verb)

    def _check_reads_fenced(self, at: np.ndarray, warps: np.ndarray, access: Access) -> None:
        """Hazard where a warp has read what the asynchronous proxy overwrites, and has passed no proxy fence
        since: loads that stand behind cp.async may be under way still when others see the arrival behind them
        (an H200 showed what was brought two trips later to the last of eight loads)."""
        clocks = access.clocks
        if not clocks.copies:
            return
        plain = np.flatnonzero(np.asarray(self.readers, np.int64) < clocks.agents.warps)
        if not len(plain):
            return
        readers = np.asarray(self.readers)[plain]
        late = self.reads[plain][:, at] > clocks.loaded[warps, readers[:, None]]
        if late.any():
            row, item = (int(part[0]) for part in np.nonzero(late))
            name = clocks.agents.names[int(readers[row])]
            raise Hazard(
                f"the asynchronous proxy writes {self._bytes(int(at[item]))}, which {name} read with no "
                "proxy fence between",
                why=f"the read is {{site:{int(self.read_site[at[item]])}}}",
                remedy="put fence.proxy.async behind the read, before the barrier",
            )

    def _late_reads(self, at: np.ndarray, warps: np.ndarray, access: Access) -> np.ndarray | None:
        """Per reader and place: whether its last read is not known to be over."""
        other = self._read_by_others(at, warps, access)
        if not self.readers:
            return None
        access.clocks.ensure()
        readers = np.asarray(self.readers)[:, None]
        late: np.ndarray = (self.reads[:, at] > access.clocks.seen[warps, readers]) & ~other
        return late if late.any() else None

    def _read_by_others(self, at: np.ndarray, warps: np.ndarray, access: Access) -> np.ndarray:
        """Where another block of the launch has read. Hazard where nothing has told the warp that it is
        over."""
        if not self.is_global:
            return np.zeros(len(at), np.bool_)
        seen = self.read_block[at]
        other: np.ndarray = (seen != _NEVER) & (seen != access.block)
        open_ = other & ~self.atomic[at] if access.is_atomic else other
        for item in np.flatnonzero(open_).tolist():
            if not self._was_told_of_reads(int(at[item]), int(warps[item]), access.clocks):
                self._blocks_race(int(at[item]), access, "read", self.read_site)
        return other

    def _race_with_read(self, late: np.ndarray, at: np.ndarray, warps: np.ndarray, access: Access) -> None:
        row, item = (int(part[0]) for part in np.nonzero(late))
        name = access.clocks.agents.names[self.readers[row]]
        self._tell_race(item, at, warps, access, "writes", f"{name} read", int(self.read_site[at[item]]))

    def _note_read_block(self, at: np.ndarray, access: Access) -> None:
        seen = self.read_block[at]
        self.clocks_of[access.block] = access.clocks.number
        self.read_block[at] = np.where((seen == _NEVER) | (seen == access.block), access.block, _MANY)

    # ---- messages ----

    def _bytes(self, granule: int) -> str:
        first = granule * self.granule
        return f"bytes {first} to {first + self.granule - 1} of {self.name}"

    def _race(self, item: int, at: np.ndarray, warps: np.ndarray, access: Access, verb: str) -> None:
        if self.writer[at[item]] == _EARLIER:
            raise Hazard(
                f"warp {int(warps[item])} {verb} {self._bytes(int(at[item]))}, which an earlier launch wrote,"
                " without having waited for its end",
                remedy="griddepcontrol.wait comes first",
            )
        name = access.clocks.agents.names[int(self.writer[at[item]])]
        self._tell_race(item, at, warps, access, verb, f"{name} wrote", int(self.site[at[item]]))

    def _tell_race(
        self, item: int, at: np.ndarray, warps: np.ndarray, access: Access, verb: str, did: str, site: int
    ) -> None:
        who = f"warp {int(warps[item])}"
        if access.agent is not None:
            who = f"{access.clocks.agents.names[access.agent]} (started by {who})"
        raise Hazard(
            f"race: {who} {verb} {self._bytes(int(at[item]))}, which {did} with nothing that orders the two",
            why=f"the other access is {{site:{site}}}",
            remedy="a barrier, or a wait for what runs in the background, is missing between them",
        )

    def _blocks_race(self, granule: int, access: Access, did: str, sites: np.ndarray) -> None:
        raise Hazard(
            f"race: block {access.block} uses {self._bytes(granule)}, which another block has {did}",
            why=f"the other access is {{site:{int(sites[granule])}}}; blocks of a launch run at once",
            remedy="let one block own it, update it atomically, or tell others that it is there by an atomic"
            ' operation with memory_order="acq_rel" behind it, and one in front of what they do',
        )

    def _unfenced(self, item: int, at: np.ndarray, access: Access, verb: str) -> None:
        name = access.clocks.agents.names[int(self.writer[at[item]])]
        raise Hazard(
            f"the asynchronous proxy {verb} {self._bytes(int(at[item]))}, which {name} wrote with no proxy "
            "fence between",
            why=f"the write is {{site:{int(self.site[at[item]])}}}",
            remedy="put fence.proxy.async behind the write, before the barrier",
        )
