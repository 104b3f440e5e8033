"""Instructions between the lanes of a warp: shuffles, votes, elections."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilec.emulate.group import WARP, Group
from tilec.emulate.instructions.registry import as_bits, function, instruction
from tilec.emulate.state.clocks import Hazard
from tilec.emulate.state.numbers import logical

_LANES = np.arange(WARP)
_ALL = 0xFFFFFFFF


def _live(g: Group, m: Any) -> np.ndarray:
    return np.ones((len(g.warps), WARP), np.bool_) if m is None else m.reshape(-1, WARP)


def shuffled(g: Group, m: Any, value: Any, source: np.ndarray, kept: np.ndarray, members: Any) -> Any:
    """Each lane gets the value of lane ``source``, or keeps its own where ``kept``. Lanes that ``members``
    names must take part, and a lane that is read must run."""
    live = _live(g, m)
    named = _members(g, members)
    if (live & ~named).any():
        raise Hazard("a shuffle is run by a lane that its mask does not name")
    missing = named & ~live & live.any(axis=1, keepdims=True)
    if missing.any():
        raise Hazard("a shuffle waits for lanes that do not run it")
    rows = np.arange(len(live))[:, None]
    if (~live[rows, source] & live & ~kept).any():
        raise Hazard("a shuffle reads a lane that does not run it")
    if not isinstance(value, np.ndarray):
        return value
    own = value.reshape(-1, WARP)
    return np.where(kept, own, own[rows, source]).reshape(-1)


def _members(g: Group, members: Any) -> np.ndarray:
    if not isinstance(members, np.ndarray):
        found = (int(members) >> _LANES) & 1
        return np.broadcast_to(found.astype(np.bool_), (len(g.warps), WARP))
    bits = members.reshape(-1, WARP) >> _LANES.astype(members.dtype)
    return np.asarray((bits & 1).astype(np.bool_))


def _places(g: Group, kind: str, operand: Any, width: int) -> tuple[np.ndarray, np.ndarray]:
    """The source lane of each lane, and which keep their own value."""
    by = g.by_warp(operand, "int64").astype(np.int64)
    lane = np.broadcast_to(_LANES, by.shape)
    first = lane // width * width
    source = {
        "xor": lambda: lane ^ by,
        "down": lambda: lane + by,
        "up": lambda: lane - by,
        "idx": lambda: first + by % width,
    }[kind]()
    kept = (source < first) if kind == "up" else (source >= first + width)
    return np.where(kept, lane, source), kept


def _shuffle(kind: str) -> Any:
    def run(g: Group, m: Any, members: Any, value: Any, operand: Any, *more: Any) -> Any:
        width = int(more[0]) if len(more) == 2 else WARP
        source, kept = _places(g, kind, operand, width)
        return shuffled(g, m, value, source, kept, members)

    return run


for _name, _kind in (("xor", "xor"), ("down", "down"), ("up", "up"), ("", "idx")):
    function(f"__shfl_{_name}_sync" if _name else "__shfl_sync", dtype="", typed_by=1, mixes=True)(
        _shuffle(_kind)
    )


@instruction("shfl.sync", outputs=lambda each: len(each.operands) - 4, mixes=True)
def shfl(g: Group, m: Any, parts: tuple[str, ...], value: Any, operand: Any, clamp: Any, members: Any) -> Any:
    """shfl.sync.{bfly,down,up,idx}.b32 d|p, a, b, c, membermask."""
    kind = {"bfly": "xor", "down": "down", "up": "up", "idx": "idx"}[parts[2]]
    width = WARP - (int(g.uniform(clamp, m)) >> 8 & 31)
    source, kept = _places(g, kind, operand, width)
    made = shuffled(g, m, as_bits(value, "uint32", g.count), source, kept, members)
    return made, (~kept).reshape(-1)


@function("__ballot_sync", dtype="uint32")
def ballot(g: Group, m: Any, members: Any, predicate: Any) -> Any:
    """Bit l: the predicate of lane l."""
    live = _live(g, m)
    votes = g.by_warp(logical(predicate), "bool") & live
    words = (votes.astype(np.uint64) << _LANES.astype(np.uint64)).sum(axis=1).astype(np.uint32)
    return np.repeat(words, WARP)


@function("__any_sync", dtype="int32")
def any_sync(g: Group, m: Any, members: Any, predicate: Any) -> Any:
    """Whether the predicate holds in some lane."""
    return (ballot(g, m, members, predicate) != 0).astype(np.int32)


@function("__all_sync", dtype="int32")
def all_sync(g: Group, m: Any, members: Any, predicate: Any) -> Any:
    """Whether the predicate holds in all lanes that run."""
    return (ballot(g, m, members, predicate) == ballot(g, m, members, True)).astype(np.int32)


@function("__activemask", dtype="uint32")
def active(g: Group, m: Any) -> Any:
    """Bit l: whether lane l runs."""
    return ballot(g, m, _ALL, True)


def _alike(g: Group, m: Any, members: Any, value: Any) -> np.ndarray:
    """(warps, lane, other lane): whether both run with the same value."""
    live = _live(g, m) & _members(g, members)
    own = g.by_warp(value, "int64")
    return np.asarray((own[:, :, None] == own[:, None, :]) & live[:, :, None] & live[:, None, :])


@function("__match_any_sync", dtype="uint32", mixes=True)
def match_any(g: Group, m: Any, members: Any, value: Any) -> Any:
    """Bit l: whether lane l has this lane's value."""
    words = (_alike(g, m, members, value).astype(np.uint64) << _LANES.astype(np.uint64)).sum(axis=2)
    return words.astype(np.uint32).reshape(-1)


@function("__syncwarp", dtype="void")
def syncwarp(g: Group, m: Any, *members: Any) -> None:
    """Lanes of a warp run in step here."""


@instruction("bar.warp.sync")
def bar_warp(g: Group, m: Any, parts: tuple[str, ...], *members: Any) -> None:
    """Lanes of a warp run in step here."""


@function("tvm_builtin_elect_one_sync", dtype="uint32")
def elect_one(g: Group, m: Any) -> Any:
    """1 in the first lane that runs, 0 in the others."""
    live = _live(g, m)
    first = live.argmax(axis=1)
    return ((first[:, None] == _LANES) & live).astype(np.uint32).reshape(-1)


@instruction("elect.sync", outputs=lambda each: len(each.operands) - 1)
def elect(g: Group, m: Any, parts: tuple[str, ...], members: Any) -> Any:
    """The predicate alone; a destination for the lane's number is a sink in generated code."""
    return (elect_one(g, m) != 0,)


@instruction("redux.sync", outputs=1, mixes=True)
def redux(g: Group, m: Any, parts: tuple[str, ...], value: Any, members: Any) -> Any:
    """redux.sync.op.type: one reduction of 32-bit integers over the warp."""
    g.whole_warps(m, "redux.sync")
    dtype = {"s32": "int32", "u32": "uint32", "b32": "uint32"}[parts[-1]]
    rows = as_bits(value, dtype, g.count).reshape(-1, WARP)
    operation = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and,
                 "or": np.bitwise_or, "xor": np.bitwise_xor}[parts[2]]  # fmt: skip
    return (np.repeat(operation.reduce(rows, axis=1), WARP),)


def _reduction(name: str) -> Any:
    def run(g: Group, m: Any, members: Any, value: Any, dtype: str) -> Any:
        return redux(g, m, ("redux", "sync", name, "s32" if dtype == "int32" else "u32"), value, members)[0]

    return run


for _name in ("add", "min", "max", "and", "or", "xor"):
    function(f"__reduce_{_name}_sync", dtype="", typed_by=1, mixes=True)(_reduction(_name))
