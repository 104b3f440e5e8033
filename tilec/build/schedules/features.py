"""What the cost of a schedule is made of: terms that its tile IR tells, each a text of `tilec.costs`.

A launch runs blocks, each makes trips through its deepest loop, of those with a product where there is one.
Its time is taken to be a sum of: one call; waves of blocks; trips of all waves; trips of all blocks, whose
operands share the caches; the same where rows of a tensor begin inside of a sector (32 bytes) or line (128
bytes); parts of a tile that a second launch adds up; bytes of all tensors. Each has a factor of 0 or more,
which `tilec.build.schedules.fit` finds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tilec.build.elaborated.frontend import elaborate_variant
from tilec.build.schedules.cost_texts import cost_text
from tilec.build.schedules.terms import Term, terms_of
from tilec.dtypes import lookup
from tilec.errors import UnsupportedError
from tilec.families import family_of
from tilec.lowering.parted import HOST_TASKS
from tilec.manifest import Variant
from tilec.package.dispatch.starts import VECTOR_BYTES
from tilec.package.model import signature
from tilec.sizes import Node, parse_size
from tilec.targets import LINE, SECTOR

if TYPE_CHECKING:
    from tilec.ir.nodes import Kernel, Launch
    from tilec.package.model import ParamRecord

#: Blocks that a multiprocessor may hold at a time; which it is, the fit finds out.
HELD = (1, 2, 3, 4)
#: Blocks of a cluster share a part of the device. So many multiprocessors have the parts of an H200 that
#: clusters of more than two find room in, by how many run at once before times step up: 39 of three blocks,
#: 30 of four, 17 of six, 15 of eight.
_PARTS = (18, 18, 16, 16, 16, 16, 16, 8)
_FEW, _UNITS = 2, 132
#: Taken from a quotient of whole numbers below 1000 before it is rounded up, so that it is rounded down.
_DOWN = 0.999
#: So small a share of a device is taken for none.
_SCARCE = 1e-4


@dataclass(frozen=True)
class Features:
    """``blocks`` and ``trips`` of a call, and terms beside them, as texts; ``shared``: the trips of all
    blocks over the units of the device, on a CPU without what lies past the ends of tensors; ``ragged``: for
    each tensor whose rows may begin anywhere in a sector or line, texts that are 1 where they do and 0 else.
    ``spread``: how many multiprocessors a block takes up, where those of a cluster have to be neighbours.
    ``joined``: how many parts of a tile one more launch adds up, empty where there is none."""

    blocks: str
    trips: str
    shared: str
    bytes: str
    ragged: tuple[str, ...]
    spread: float = 1.0
    joined: str = ""

    def terms(self, held: int) -> tuple[str, ...]:
        """The texts whose factors are fitted, for so many blocks on a multiprocessor."""
        waves = self._waves(held)
        ragged = (f"{self.shared} * {each}" for each in self.ragged)
        joined = (self.joined,) if self.joined else ()
        return ("1", waves, f"{waves} * {self.trips}", *joined, self.shared, *ragged, self.bytes)

    def cost(self, held: int, factors: Sequence[float]) -> str:
        """The sum of `terms` with such factors; those of 0 are left out."""
        call, wave, trip, *others = factors
        join = others.pop(0) if self.joined else 0.0
        shared, *ragged, moved = others
        in_wave = _sum([(wave, ""), (trip, self.trips)])
        in_all = _sum([(shared, ""), *zip(ragged, self.ragged, strict=True)])
        parts = [
            _sum([(call, ""), (join, self.joined)]),
            f"{self._waves(held)} * ({in_wave})" if in_wave else "",
            f"{self.shared} * ({in_all})" if in_all else "",
            _sum([(moved, self.bytes)]),
        ]
        return " + ".join(filter(None, parts)) or "0"

    def _waves(self, held: int) -> str:
        taken = self.blocks if self.spread == 1 else f"{self.blocks} * {self.spread:.4g}"
        return f"waves({taken if held == 1 else f'{taken} / {held}'})"


def _sum(terms: Sequence[tuple[float, str]]) -> str:
    """Factors before texts; a factor alone where the text is empty."""
    return " + ".join(
        f"{factor:.4g} * {text}" if text else f"{factor:.4g}" for factor, text in terms if factor
    )


def features_of(variant: Variant) -> Features:
    """Of a kernel of one launch. Raises UnsupportedError for any other."""
    kernel = elaborate_variant(variant).kernel
    work = terms_of(kernel)
    counted = [term for term in work.terms if term.flops] or work.terms
    if work.launches != 1 or not counted or not work.known:
        raise UnsupportedError(
            f"{variant.kernel} has no one launch whose loops depend on its dims alone",
            place=variant.place,
            remedy="give costs by hand",
        )
    cluster = variant.config.get("split_k", variant.config.get("split_row", 1))
    fold = _rows_of_a_group(work.dtype) if variant.config.get("fold_k") else 1
    axis = _axis_of_rows(kernel.launches[0]) if fold > 1 else None
    parts = cluster if fold == 1 or axis is not None else fold
    grid = len(kernel.launches[0].grid)
    deepest = max(counted, key=lambda term: len(term.counts))
    params = [param for param in signature(kernel).params if param.is_tensor]
    middles = {name: parse_size(text) for name, text in work.middles}
    counts = list(map(cost_text, deepest.counts[:grid]))
    if axis is not None:
        counts[axis] = f"ceil({counts[axis]} / {fold}) * {fold}"
    blocks = _product([*counts, *([str(parts)] if parts > 1 else [])])
    trips = _trips(deepest.counts[grid:], parts, middles)
    is_clipped = family_of(variant.target).on_host
    found = Features(
        blocks,
        trips,
        _clipped(deepest, grid, middles) if is_clipped else f"rounds({blocks}) * {trips}",
        _bytes(params),
        tuple(dict.fromkeys(text for param in params for text in _ragged(param, kernel))),
        _spread(cluster),
    )
    if "spread_k" not in variant.config:
        return found
    tiles = _paired(list(map(cost_text, deepest.counts[:grid])), variant.config.get("cluster", ()))
    idle = f"{HOST_TASKS} / max(1, {tiles})" if is_clipped else f"1 / max({_SCARCE}, rounds({tiles}))"
    return _parted(found, tiles, idle, variant.config["spread_k"])


def _rows_of_a_group(dtype: str) -> int:
    """How many rows of any length are whole vectors together: each has blocks of its own with `fold_k`."""
    return VECTOR_BYTES * 8 // lookup(dtype).bits


def _axis_of_rows(launch: Launch) -> int | None:
    """The axis of the grid that rows of a second operand follow which is stored along K; None of others."""
    from tilec.ir.exprs import inlined, uses
    from tilec.ir.nodes import Copy, Gemm, walk
    from tilec.lowering.analysis.accesses import values_of

    names = values_of(walk(launch.body))
    gemm = next((stmt for stmt in walk(launch.body) if isinstance(stmt, Gemm) and stmt.trans_b), None)
    copies = [stmt for stmt in walk(launch.body) if isinstance(stmt, Copy)]
    starts = [copy.src.start[-2] for copy in copies if gemm and copy.dst.buffer.same_as(gemm.b.buffer)]
    rows = [inlined(start, names) for start in starts]
    axes = enumerate(launch.block_vars)
    return next((axis for axis, var in axes if any(uses(row, (var,)) for row in rows)), None)


def _spread(blocks: int) -> float:
    """How many multiprocessors a block takes up in a cluster of so many."""
    return _UNITS / (blocks * sum(part // blocks for part in _PARTS)) if blocks > _FEW else 1.0


def _clipped(term: Term, grid: int, middles: Mapping[str, Node]) -> str:
    """The trips of all blocks where the last of each row and column count with their share."""
    texts = [cost_text(text, middles, rounded=False) for text in term.counts]
    return f"rounds({_product(texts[:grid])}) * {_product(texts[grid:])}"


def _trips(counts: Sequence[str], parts: int, middles: Mapping[str, Node]) -> str:
    """Those of the block in the middle of the grid, where they depend on the block."""
    trips = _product([cost_text(count, middles) for count in counts])
    return trips if parts == 1 else f"ceil({trips} / {parts})"


def _parted(of: Features, tiles: str, idle: str, fewest: int) -> Features:
    """Of a launch each of whose ``tiles`` has a part of its trips for each of the ``idle`` multiprocessors
    that there are for it, but parts of the ``fewest`` trips at least."""
    parts = f"max(1, min(ceil({idle} - {_DOWN}), ceil({of.trips} / {fewest} - {_DOWN})))"
    return replace(of, blocks=f"{tiles} * {parts}", trips=f"ceil({of.trips} / {parts})", joined=parts)


def _paired(counts: Sequence[str], clusters: Sequence[int]) -> str:
    """The tiles of a grid whose clusters are whole."""
    sizes = (*clusters, *[1] * len(counts))
    return _product(
        [n if size == 1 else f"ceil({n} / {size}) * {size}" for n, size in zip(counts, sizes, strict=False)]
    )


def _bytes(params: Sequence[ParamRecord]) -> str:
    """Millions of bytes."""
    return f"({' + '.join(filter(None, map(_tensor, params)))})"


def _tensor(param: ParamRecord) -> str:
    return _product([*map(cost_text, param.extents), repr(lookup(param.dtype).bits / 8e6)])


def _ragged(param: ParamRecord, kernel: Kernel) -> list[str]:
    """1 where rows of a tensor are no whole sectors, and where they are no whole lines."""
    row = param.extents[-1] if len(param.extents) > 1 else ""
    if row not in {dim.name for dim in kernel.dims if dim.var is not None}:
        return []
    per = [size * 8 // lookup(param.dtype).bits for size in (SECTOR, LINE)]
    return [f"min(1, ceil({row} / {count}) * {count} - {row})" for count in per]


def _product(texts: Sequence[str]) -> str:
    return " * ".join(text for text in texts if text != "1") or "1"
