"""Steps of wide random programs on whole tiles: copies, reductions, scans, sums, atomics."""

from __future__ import annotations

from wide_values import EXACT, FLOATS, REST, UNSIGNED, Value, resting
from wide_writer import Tile, Writer

#: Elements of the tensor that all blocks count in.
BINS = 7
#: Operations of atomics.
ATOMICS = ("add", "add", "max", "min")


class Tiles(Writer):
    """Statements on tiles, each followed by what brings their elements back to small numbers."""

    def _copy(self, level: int) -> None:
        """A tile to another one, or a part of a tensor to a tile."""
        draw = self.random
        one, other = draw.sample(self.tiles, 2) if len(self.tiles) > 1 else (self.tiles[0],) * 2
        negative = one.dtype not in UNSIGNED and other.dtype in UNSIGNED
        if one.memory == other.memory or negative or len(one.shape) != len(other.shape):
            return
        extents = [
            draw.choice([min(sizes), draw.randrange(1, min(sizes) + 1)])
            for sizes in zip(one.shape, other.shape, strict=True)
        ]
        parts = []
        for tile in (one, other):
            starts = [
                draw.choice([0, size - extent]) for size, extent in zip(tile.shape, extents, strict=True)
            ]
            parts.append(
                ", ".join(f"{start}:{start + extent}" for start, extent in zip(starts, extents, strict=True))
            )
        self._line(level, f"T.copy({one.name}[{parts[0]}], {other.name}[{parts[1]}])")

    def _sum_type(self, tile: Tile, count: int) -> str:
        """A type in which sums of so many elements have room."""
        wide = "float32" if tile.dtype in FLOATS else "int32"
        return tile.dtype if count * REST <= EXACT[tile.dtype] and self.random.random() < 0.5 else wide

    def _reduce(self, level: int) -> None:
        """A reduction of any axis, whose result goes back to one of its elements."""
        draw, tile = self.random, self.random.choice(self.tiles)
        axis = draw.randrange(len(tile.shape))
        keeps = draw.random() < 0.25 and len(tile.shape) > 1
        sizes = [(at, 1 if at == axis else size) for at, size in enumerate(tile.shape)]
        left = tuple(size for at, size in sizes if keeps or at != axis) or (1,)
        kinds = ["sum", "sum", "max", "min", "absmax", "abssum"]
        kinds += [] if tile.dtype in FLOATS else ["bitand", "bitor", "bitxor"]
        kind, clear = draw.choice(kinds), draw.random() < 0.5
        self.fresh += 1
        dtype = self._sum_type(tile, tile.shape[axis] + 1) if "sum" in kind else tile.dtype
        result = Tile(f"r{self.fresh}", left, dtype, draw.random() < 0.4)
        scope = "shared" if result.shared else "fragment"
        self._line(level, f'{result.name} = T.alloc_{scope}({left}, "{result.dtype}")')
        told = "" if kind == "abssum" else f", clear={clear}"
        if not clear:
            self._line(level, f"T.fill({result.name}, 2)")
        dim = draw.choice([axis, axis - len(tile.shape)])
        self._line(level, f"T.reduce_{kind}({tile.name}, {result.name}, dim={dim}{told})")
        self._rest(level, result)
        names = self._over(level, tile)
        kept = [(at, "0" if at == axis else name) for at, name in enumerate(names)]
        places = [name for at, name in kept if keeps or at != axis] or ["0"]
        element = f"{tile.name}[{', '.join(names)}]"
        one = Value(element, tile.dtype, REST).wide()
        other = Value(f"{result.name}[{', '.join(places)}]", result.dtype, REST).wide()
        value = resting(Value(f"({one.text} + {other.text})", one.dtype, 2 * REST), tile.dtype)
        self._line(level + 1, f"{element} = {value.text}")

    def _scan(self, level: int) -> None:
        draw = self.random
        tiles = [tile for tile in self.tiles if len(tile.shape) < 3]
        tile = draw.choice(tiles)
        axis = draw.randrange(len(tile.shape))
        kind = draw.choice(
            ["cumsum", "cummax"] if tile.shape[axis] * REST <= EXACT[tile.dtype] else ["cummax"]
        )
        options = f"dim={axis}, reverse={draw.random() < 0.4}"
        same = [
            each
            for each in self.own
            if each.shape == tile.shape and each.dtype == tile.dtype and each.memory != tile.memory
        ]
        target = draw.choice(same) if same and draw.random() < 0.5 else None
        into = f"{target.name}, " if target else ""
        self._line(level, f"T.{kind}({tile.name}, {into}{options})")
        self._rest(level, target or tile)

    def _accumulate(self, level: int) -> None:
        """Elements of a fragment that several iterations add to."""
        draw = self.random
        tile = draw.choice([each for each in self.tiles if len(each.shape) > 1] or self.tiles)
        axes = [axis for axis in range(len(tile.shape)) if draw.random() < 0.5][: len(tile.shape) - 1] or [0]
        if len(tile.shape) == 1:
            return
        self.fresh += 1
        sums = Tile(
            f"c{self.fresh}",
            tuple(tile.shape[axis] for axis in axes),
            "float32" if tile.dtype in FLOATS else "int32",
            False,
        )
        self._line(level, f'{sums.name} = T.alloc_fragment({sums.shape}, "{sums.dtype}")')
        self._line(level, f"T.clear({sums.name})")
        names = self._over(level, tile)
        element, target = (
            f"{tile.name}[{', '.join(names)}]",
            f"{sums.name}[{', '.join(names[axis] for axis in axes)}]",
        )
        form = draw.choice(
            ["{t} += {e}", "{t} = {t} + {e}", "{t} = T.max({t}, {e})", "T.atomic_add({t}, {e})"]
        )
        self._line(level + 1, form.format(t=target, e=Value(element, tile.dtype, REST).cast(sums.dtype).text))
        self._rest(level, sums)
        names = self._over(level, tile)
        value = Value(f"{sums.name}[{', '.join(names[axis] for axis in axes)}]", sums.dtype, REST)
        self._line(level + 1, f"{tile.name}[{', '.join(names)}] = {resting(value, tile.dtype).text}")

    # ---- atomics ----

    def _atomics(self, level: int) -> None:
        """Elements of tensors that iterations and blocks change together, or rows of them at once."""
        draw = self.random
        tile = draw.choice([each for each in self.own if len(each.shape) == 2])
        target = draw.choice("swh")
        names = self._over(level, tile)
        element = Value(f"{tile.name}[i, j]", tile.dtype, REST)
        where = {"s": self._row(), "w": self._col(), "h": f"(i * 3 + j + bx) % {BINS + 1}"}[target]
        operation = self.atomics[target]
        line = f"T.atomic_{operation}({target.upper()}[{where}], {self._as(element, self.dtypes[target])})"
        if draw.random() < 0.3:
            self._line(level + 1, f"if {self._test(names)}:")
            self._line(level + 2, line)
        else:
            self._line(level + 1, line)

    def _shared_atomics(self, level: int) -> None:
        """A shared tile that iterations change together, by elements or as a whole."""
        draw, tile = self.random, self.random.choice(self.tiles)
        self.fresh += 1
        dtype = draw.choice(["int32", "float32", "uint32"])
        bins = Tile(f"h{self.fresh}", (draw.choice([1, BINS, self.bM, self.bN]),), dtype, True)
        self._line(level, f'{bins.name} = T.alloc_shared({bins.shape}, "{dtype}")')
        self._line(level, f"T.fill({bins.name}, 1)")
        names = self._over(level, tile)
        element = Value(f"{tile.name}[{', '.join(names)}]", tile.dtype, REST)
        place = draw.choice(
            [
                f"({' + '.join(names)}) % {bins.shape[0]}",
                f"({element.whole().text} % {bins.shape[0]})",
                names[0],
            ]
        )
        operation = draw.choice(["add", "max", "min"])
        self._line(level + 1, f"T.atomic_{operation}({bins.name}[{place}], {self._as(element, dtype)})")
        self._rest(level, bins)
        if draw.random() < 0.4 and bins.shape[0] == self.bN and self.dtypes["w"] == dtype:
            self._line(level, f"T.atomic_{self.atomics['w']}(W[bx * {self.bN}], {bins.name})")
        names = self._over(level, tile)
        value = Value(f"{bins.name}[{names[-1]} % {bins.shape[0]}]", dtype, REST)
        self._line(level + 1, f"{tile.name}[{', '.join(names)}] = {resting(value, tile.dtype).text}")
