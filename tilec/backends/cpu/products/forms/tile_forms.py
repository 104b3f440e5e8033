"""The matrix unit of x86 (AMX): its instructions, and how the functions that run them are called.

A register tile has up to 16 rows of 64 bytes. One instruction adds to a tile of 16 x 16 sums the products of
a tile of ``a``, whose rows are words of K elements, and a tile of ``b``, whose rows are those words of 16
columns (Intel SDM, volume 1, chapter 18).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.nodes import RegisterBlock
from tilec.backends.cpu.products.forms.dot_forms import DotForm
from tilec.backends.cpu.products.forms.tile_source import HELD_STEPS, PAST, tile_source

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.targets import Target

#: Rows of a register tile, and words of one of its rows.
TILE = 16
#: Bytes of the first data cache of every core with the unit.
FIRST_CACHE = 48 * 1024
#: Fewer words of K a step than this leave the unit waiting for its operands.
_LEAST_WORDS = 4


@dataclass(frozen=True)
class TileForm(DotForm):
    """One instruction; its words are those of ``a`` and ``b`` alike."""

    def steps(self, depth: int) -> tuple[int, int] | None:
        """Steps over ``depth`` K elements and words of each; None where no fitting number divides them."""
        words = depth // self.group
        wide = max((width for width in range(1, TILE + 1) if words % width == 0), default=0)
        return (words // wide, wide) if depth % self.group == 0 and wide >= _LEAST_WORDS else None

    def block(self, vectors: RegisterBlock, rows: int, depth: int, columns: int) -> RegisterBlock | None:
        """Two by two tiles, less where there are fewer columns."""
        if columns % TILE or self.steps(depth) is None:
            return None
        return RegisterBlock(2 * TILE, min(2 * TILE, columns), lanes=TILE, unroll=1, form=self.name)

    def ends_at(self, depth: int) -> bool:
        """As many as `steps` has whole ones for."""
        return self.steps(depth) is not None

    def panel(self, block: RegisterBlock) -> int:
        """One tile, whose rows then lie side by side."""
        return TILE

    def demands(self, vectors: RegisterBlock) -> tuple[int, int]:
        """Full tiles; K may also be a multiple of less (`steps`)."""
        return TILE * self.group, TILE

    def configure(self, upper: Expr, lower: Expr, words: int) -> tirx.Stmt:
        """Tiles of ``upper`` and ``lower`` rows, one below the other, for steps of ``words``."""
        return self._call("configure", upper, lower, tirx.const(words, "int32"))

    def multiply(self, rows: int, cols: int, past: bool, *args: Expr) -> tirx.Stmt:
        """``rows`` x ``cols`` tiles of sums over all of K: for ``a`` the address of the first element and
        bytes from row to row, the same of where else its rows may lie, whether they do, and bytes from step
        to step; for ``b`` address, bytes from row to row, from step to step and to its next tile; for the
        sums that are added to, then for where the new ones go, address and bytes from row to row; the number
        of steps; whether the sums start at 0. ``past``: ``b`` comes past the first cache."""
        return self._call(f"{rows}x{cols}{PAST if past else ''}", *args)

    def keeps_rows(self, steps: int, words: int) -> bool:
        """Whether the tiles hold the rows of a block over all of K. They have to be full, as all tiles are
        then that whole blocks are configured with."""
        return steps <= HELD_STEPS and words == TILE

    def multiply_held(self, steps: int, past: bool, *args: Expr) -> tirx.Stmt:
        """Two tiles of rows, which are held, over all of K by panels of ``b``: for ``a`` and ``b`` what
        `multiply` takes; for the sums, which start at 0, address and bytes from row to row; the number of
        panels."""
        return self._call(f"held{steps}{PAST if past else ''}", *args)

    def release(self) -> tirx.Stmt:
        """Gives the tiles back: the thread's state is as small as it was."""
        return self._call("release")

    def _call(self, name: str, *args: Expr) -> tirx.Stmt:
        return tirx.Evaluate(tirx.call_extern("int32", f"tilec_{self.name}_{name}", *args))


def _form(name: str, group: int, stored: str) -> TileForm:
    zeros = stored == "bfloat16"
    return TileForm(name, group, stored, source=tile_source(name), takes_denormals_as_zeros=zeros)


#: tdpbf16ps: bfloat16 pairs, sums in float32, subnormals count as zero. tdpb..d: four bytes, those of ``a``
#: and of ``b`` signed (s) or not (u); words of either sign are packed alike.
TILE_FORMS = {
    form.name: form
    for form in (
        _form("tdpbf16ps", 2, "bfloat16"),
        _form("tdpbssd", 4, "int8"),
        _form("tdpbuud", 4, "uint8"),
        _form("tdpbusd", 4, "int8"),
        _form("tdpbsud", 4, "int8"),
    )
}
_BY_TYPES = {
    ("bfloat16", "bfloat16", "float32"): "tdpbf16ps",
    ("int8", "int8", "int32"): "tdpbssd",
    ("uint8", "uint8", "int32"): "tdpbuud",
    ("uint8", "int8", "int32"): "tdpbusd",
    ("int8", "uint8", "int32"): "tdpbsud",
}


def tile_form(target: Target, a: str, b: str, c: str) -> TileForm | None:
    """The instruction for operands of types ``a`` and ``b`` into ``c``; None without one."""
    name = _BY_TYPES.get((a, b, c)) if target.has("amx") else None
    return None if name is None else TILE_FORMS[name]
