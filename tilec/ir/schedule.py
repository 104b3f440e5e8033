"""How a launch is carried out, never what it computes: one field for each schedule key.

A key comes from a kernel's config or from its author (`T.use_swizzle`, `T.pdl_sync` and their kin); the field
says what values it takes, what it does, and which families of launches obey it. Docs, checks and the notes of
`tilec explain` read the fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from tilec.ir.roads import ROADS

#: The families of launches on a GPU -> where a key has no effect on one of theirs.
FAMILIES = {
    "products": "on products without packed weights",
    "attention": "on attention",
    "packed_weights": "on products of packed weights",
    "threads": "without TMA and wgmma",
}


@dataclass(frozen=True)
class Form:
    """What values a key takes: in words, and as a test."""

    said: str
    admits: Callable[[object], bool]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _are_counts(value: object) -> bool:
    return _is_count(value) or (
        isinstance(value, tuple) and 1 <= len(value) <= 3 and all(map(_is_count, value))
    )


def _are_names(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(name, str) for name in value)


def _are_roads(value: object) -> bool:
    names = (value,) if isinstance(value, str) else value
    return isinstance(names, tuple) and bool(names) and all(name in ROADS for name in names)


COUNT = Form("a positive integer", _is_count)
SWITCH = Form("true or false", lambda value: isinstance(value, bool))
COUNTS = Form("a positive integer or up to three of them, one per grid axis", _are_counts)
NAMES = Form("a list of tensor names", _are_names)
ORDER = Form('"row" or "column"', lambda value: value in ("row", "column"))
ROAD_NAMES = Form(f"one of {', '.join(ROADS)}, or a list of them", _are_roads)


@dataclass(frozen=True)
class Key:
    """The ``form`` of a key's values, an ``example``, what it ``does``, the ``families`` that obey it."""

    form: Form
    example: str
    does: str
    families: tuple[str, ...]


def _key(form: Form, example: str, does: str, *families: str) -> Any:
    return field(default=None, metadata={"key": Key(form, example, does, families or tuple(FAMILIES))})


@dataclass(frozen=True)
class Schedule:
    """What a launch asks for; None where a default counts. A config wins over its author."""

    #: Blocks of a cluster along each grid axis, as T.Kernel says; `cluster` is that of a config.
    cluster_dims: int | tuple[int, ...] | None = None
    #: (tiles of a band, its order) of T.use_swizzle; `group` and `group_order` are those of a config.
    use_swizzle: tuple[int, str] | None = None
    #: Tensors that may overlap (`tilec.ir.analysis.aliases`).
    may_alias: tuple[str, ...] | None = None
    cluster: int | tuple[int, ...] | None = _key(
        COUNTS,
        "`[2, 1]`, `[1, 2]`",
        "pairs of blocks along that grid axis bring a shared operand once, with tcgen05 a second one, and"
        " multiply as one; `1` for no pairs",
        "products",
        "packed_weights",
    )
    group: int | None = _key(
        COUNT, "8", "tiles of a band that share operands in L2", "products", "packed_weights", "threads"
    )
    group_order: str | None = _key(
        ORDER, '`"column"`', "the axis that bands run along", "products", "packed_weights", "threads"
    )
    pingpong: bool | None = _key(
        SWITCH,
        "true",
        "two consumer warpgroups take tiles of their own in turns; one multiplies while the other stores: the"
        " default of products where blocks may have several tiles and a warpgroup has registers for one."
        " `false`: they share each tile, and those of attention issue their products as they come",
        "products",
        "attention",
        "threads",
    )
    stages: int | None = _key(
        COUNT,
        "3",
        "stages of a ring, as far as they fit, instead of as many as tensor cores want; never fewer than"
        " `num_stages`",
        "products",
        "threads",
    )
    swap: bool | None = _key(
        SWITCH,
        "true, false",
        "computes C transposed, so that N is the side of 64 rows: for few rows of A (tiles of 16 to 128);"
        " the default where the tile fits that way alone",
        "products",
    )
    split_k: int | None = _key(
        COUNT,
        "2, 4, 8",
        "so many blocks of a cluster share the K of one tile and add up through each other's shared memory:"
        " the default where dims are known to make few and deep tiles; `1` for none",
        "products",
        "packed_weights",
    )
    spread_k: int | None = _key(
        COUNT,
        "6",
        "as many blocks as a usual device runs at once share the K of few tiles, each so many trips at least;"
        " sums of parts pass through the workspace, and a launch behind adds them, always in the same order",
        "products",
    )
    fold_k: bool | None = _key(
        SWITCH,
        "true",
        "rows of a second operand that is stored across K and begin anywhere come in groups (of 16 bits:"
        " eight), which TMA takes: for few rows of the first one. Each row of a group makes a product of its"
        " own, whose sums pass through the workspace; a launch behind adds them, always in the same order."
        " Rows that are stored along K make columns of the result instead, with nothing to add",
        "products",
    )
    align: bool | None = _key(
        SWITCH,
        "true, false",
        "copies operands whose rows are not known to start at multiples of 16 bytes to the workspace first,"
        " however few blocks share them, or never: the default is to where more than two may",
    )
    phase: bool | None = _key(
        SWITCH,
        "true",
        "rows that begin anywhere, of any length, are read in whole vectors from the ones on that they begin"
        " and end in; what these hold of other rows is cut off in registers. The default is vectors for long"
        " rows, whose ends are read element by element, and elements for others",
        "threads",
    )
    split_row: int | None = _key(
        COUNT,
        "2, 4, 8",
        "so many blocks of a cluster share the rows that a launch without products reduces or scans: each has"
        " an equal part of the columns of every tile, and sums and extremes of parts meet in shared memory",
        "threads",
    )
    unroll: int | None = _key(COUNT, "1", "keeps the compiler from unrolling the loop along K", "products")
    promote_k: int | None = _key(
        COUNT,
        "the tile's K",
        "sums leave the tensor core every so many steps of K and are added in float32",
        "products",
    )
    scale_sums: bool | None = _key(
        SWITCH,
        "true",
        "scales of packed weights multiply sums of groups, in float32, instead of each weight",
        "packed_weights",
    )
    persistent: bool | None = _key(SWITCH, "false", "one block per tile", "products")
    pdl: bool | None = _key(
        SWITCH,
        "true",
        "lets a launch begin before the one in front of it has ended, and wait there (any launch, from sm_90"
        " on; products without `constant` operands where their blocks are few, or load little, by default,"
        " too)",
    )
    constant: tuple[str, ...] | None = _key(
        NAMES,
        '`["W"]`',
        "tensors that no launch in flight writes: with `pdl`, products on sm_90a read them at once",
        "products",
        "packed_weights",
    )
    evict_first: tuple[str, ...] | None = _key(
        NAMES, '`["C"]`', "tensors whose lines leave the L2 cache early", "products", "packed_weights"
    )
    evict_last: tuple[str, ...] | None = _key(
        NAMES, '`["B"]`', "tensors whose lines leave the L2 cache late", "products", "packed_weights"
    )
    min_blocks_per_sm: int | None = _key(
        COUNT,
        "4",
        "limits registers so that so many blocks fit on a multiprocessor; a launch that asks for more than"
        " one takes no warp roles but those of packed weights",
    )
    road: str | tuple[str, ...] | None = _key(
        ROAD_NAMES,
        '`"warp_roles"`',
        "asks for instructions: no code changes, a kernel that does not get them is warned of, and refused"
        " under `--strict`",
    )

    @property
    def given(self) -> dict[str, Any]:
        """What is asked for, by field, in the order of the fields."""
        return {name: value for name in SCHEDULED if (value := getattr(self, name)) is not None}

    @property
    def band(self) -> int | None:
        """Tiles of a band; None where nobody asks for bands."""
        return self.group if self.group is not None or self.use_swizzle is None else self.use_swizzle[0]

    @property
    def band_order(self) -> str | None:
        """Whether a band runs along "row" or "column" of the grid."""
        given = self.group_order
        return given if given is not None or self.use_swizzle is None else self.use_swizzle[1]

    @property
    def clusters(self) -> tuple[int, ...] | None:
        """Blocks of a cluster along each grid axis."""
        asked = self.cluster_dims if self.cluster is None else self.cluster
        return (asked,) if isinstance(asked, int) else asked

    @property
    def evict(self) -> dict[str, str]:
        """By tensor, "first" or "last" to leave the L2 cache."""
        named = {"first": self.evict_first or (), "last": self.evict_last or ()}
        return {name: when for when, names in named.items() for name in names}

    def without_effect_on_cpus(self) -> list[str]:
        """A note for every key that launches on CPUs do not obey."""
        asked = {name: value for name, value in self.given.items() if name in KEYS and name not in OF_CPUS}
        return [f"{name} = {value!r} has no effect on CPUs" for name, value in asked.items()]

    def without_effect(self, family: str) -> list[str]:
        """A note for every key that launches of ``family`` do not obey."""
        return [
            f"{name} = {value!r} has no effect {FAMILIES[family]}"
            for name, value in self.given.items()
            if name in KEYS and family not in KEYS[name].families
        ]


#: The keys that launches on CPUs obey.
OF_CPUS = ("spread_k", "road")
#: All that a launch may ask for.
SCHEDULED = tuple(item.name for item in fields(Schedule))
#: The keys of a config.
KEYS: Mapping[str, Key] = {
    item.name: item.metadata["key"] for item in fields(Schedule) if "key" in item.metadata
}


def table() -> str:
    """The rows of the reference, as Markdown."""
    return "\n".join(f"| `{name}` | {key.example} | {key.does} |" for name, key in KEYS.items())
