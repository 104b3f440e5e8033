"""Steps of wide random programs that look at memory in another way: as other types, from another start, by
lists of rows, in another layout."""

from __future__ import annotations

import math

from wide_values import BITS, REST, UNSIGNED, Value, resting
from wide_writer import Tile, Writer

#: Types that the bits of others may be read as: those without numbers that differ from themselves.
WHOLE = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64")


class Memory(Writer):
    """Views, parts of tensors under other shapes, and copies whose places data tell."""

    def _reinterpreted(self, level: int) -> None:
        """The bits of a tile's elements, as another type, in a tile. They are above zero: of -0.0 every road
        has its own."""
        draw, tile = self.random, self.random.choice(self.tiles)
        self.fresh += 1
        bits = Tile(f"w{self.fresh}", tile.shape, tile.dtype, True)
        kind = draw.choice(
            [each for each in WHOLE if BITS[each] <= BITS[tile.dtype] or tile.shape[-1] % 8 == 0]
        )
        self._line(level, f'{bits.name} = T.alloc_shared({bits.shape}, "{bits.dtype}")')
        names = self._over(level, tile)
        place = ", ".join(names)
        value = Value(f"{tile.name}[{place}]", tile.dtype, REST).whole().text
        self._line(level + 1, f'{bits.name}[{place}] = T.cast(T.abs({value}) + 1, "{bits.dtype}")')
        total = math.prod(tile.shape) * BITS[tile.dtype] // BITS[kind]
        shape = self._shape_of(tile, kind, total)
        told = "" if shape is None else f"{shape}, "
        self._line(level, f'b{self.fresh} = T.view({bits.name}, {told}dtype="{kind}")')
        if shape is None:
            shape = (*tile.shape[:-1], tile.shape[-1] * BITS[tile.dtype] // BITS[kind])
        self._take_bits(level, f"b{self.fresh}", shape, kind)

    def _shape_of(self, tile: Tile, kind: str, total: int) -> tuple[int, ...] | None:
        """That of a view of so many elements; none where the last axis changes with the width."""
        draw = self.random
        if tile.shape[-1] * BITS[tile.dtype] % BITS[kind] == 0 and draw.random() < 0.4:
            return None
        rows = draw.choice([size for size in range(1, total + 1) if total % size == 0])
        return (rows, total // rows) if draw.random() < 0.6 else (total,)

    def _take_bits(self, level: int, name: str, shape: tuple[int, ...], dtype: str) -> None:
        """What a view holds, brought to small numbers in a tile of the program."""
        target = self.random.choice(self.tiles)
        names = self._over(level, target)
        places = []
        for axis, size in enumerate(shape):
            other = names[min(axis, len(names) - 1)]
            places.append(self.random.choice([f"{other} % {size}", f"({other} * 3 + 1) % {size}"]))
        value = Value(f"{name}[{', '.join(places)}]", dtype, 2**40, dtype not in UNSIGNED).cast("int64")
        small = Value(f"T.cast({value.text} % 9 - 4, 'int32')", "int32", REST)
        self._line(level + 1, f"{target.name}[{', '.join(names)}] = {resting(small, target.dtype).text}")

    def _flat(self, level: int) -> None:
        """A tensor under another shape, read beyond its rows."""
        draw, tile = self.random, self.random.choice(self.tiles)
        self.fresh += 1
        name = f"x{self.fresh}"
        shape, place = draw.choice(
            [
                ("(M * N,)", "{r} * N + {c}"),
                ("(M, N, 1)", "{r}, {c}, 0"),
                ("(1, M * N)", "0, {r} * N + {c} - 1"),
            ]
        )
        self._line(level, f'{name} = T.Tensor({shape}, "{self.dtypes["x"]}", X.data)')
        names = self._over(level, tile)
        read = place.format(r=f"(by * {self.bM} + {names[0]})", c=f"bx * {self.bN} + {names[-1]}")
        value = Value(f"{name}[{read}]", self.dtypes["x"], REST)
        self._line(level + 1, f"{tile.name}[{', '.join(names)}] = {resting(value, tile.dtype).text}")

    def _gathered(self, level: int) -> None:
        """A row, or a run of rows, whose place a tensor or a loop tells, to a tile."""
        draw = self.random
        fits = [each for each in self.own if self._takes_from("x", each) and each.shape[-1] == self.bN]
        tiles = [each for each in fits if len(each.shape) < 3]
        if not tiles:
            return
        tile = draw.choice(tiles)
        row = draw.choice(
            ["L[bx]", f"L[by * {self.bM}]", "n", *(f"L[{name}]" for name in self.loops), "L[n] + 1"]
        )
        start = f"bx * {self.bN}"
        if len(tile.shape) == 1:
            forms = [f"X[{row}, {start}:{start} + {self.bN}]", f"X[{row}, {start}]"]
            self._line(level, f"T.copy({draw.choice(forms)}, {tile.name})")
            return
        if draw.random() < 0.5:
            form = draw.choice(["X[{r}, {c}]", "X[{r}:{r} + {m}, {c}:{c} + {n}]"])
            part = form.format(r=row, c=start, m=self.bM, n=self.bN)
            self._line(level, f"T.copy({part}, {tile.name})")
            return
        self._line(level, f"for g in T.{draw.choice(['serial', 'unroll'])}({self.bM}):")
        self._line(level + 1, f"at = L[by * {self.bM} + g]")
        self._line(level + 1, f"T.copy(X[at, {start}:{start} + {self.bN}], {tile.name}[g, :])")

    def _takes_from(self, tensor: str, tile: Tile) -> bool:
        return not (tile.dtype in UNSIGNED and self.dtypes[tensor] not in UNSIGNED)

    def _layouts(self) -> None:
        """Layouts of shared tiles, which change no value."""
        draw = self.random
        told = []
        for tile in self.own:
            if not tile.shared or len(tile.shape) != 2 or draw.random() > 0.25:
                continue
            rows, cols = tile.shape
            forms = [
                f"tilec.layout.make_linear_layout({tile.name})",
                f"T.Layout({tile.shape}, lambda i, j: i * {cols} + j)",
                f"T.Layout({tile.shape}, lambda i, j: j * {rows} + i)",
                f"T.Layout({tile.shape}, lambda i, j: (i, (j + i) % {cols}))",
            ]
            if cols * BITS[tile.dtype] // 8 in (32, 64, 128) and rows % 8 == 0:
                forms += [f"tilec.layout.make_swizzled_layout({tile.name})"] * 3
            told.append(f"{tile.name}: {draw.choice(forms)}")
        if told:
            self._line(3, f"T.annotate_layout({{{', '.join(told)}}})")

    def _turned(self, level: int) -> None:
        """A shared tile and its transpose."""
        tiles = [tile for tile in self.own if tile.shared and len(tile.shape) == 2]
        if not tiles:
            return
        tile = self.random.choice(tiles)
        self.fresh += 1
        turned = Tile(f"u{self.fresh}", tile.shape[::-1], tile.dtype, True)
        self._line(level, f'{turned.name} = T.alloc_shared({turned.shape}, "{turned.dtype}")')
        self._line(level, f"T.transpose({tile.name}, {turned.name})")
        target = self.random.choice([each for each in self.tiles if each.memory != tile.name] or self.tiles)
        names = self._over(level, target)
        rows, cols = turned.shape
        value = Value(f"{turned.name}[{names[-1]} % {rows}, {names[0]} % {cols}]", turned.dtype, REST)
        self._line(level + 1, f"{target.name}[{', '.join(names)}] = {resting(value, target.dtype).text}")
