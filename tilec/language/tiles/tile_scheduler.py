"""T.PersistentTileScheduler: which tile a worker of a persistent grid takes, one after the other."""

from __future__ import annotations

from typing import Any

from tilec.errors import SourceRuntimeError, SourceValueError
from tilec.language.tiles.device import multiprocessors
from tilec.language.tiles.memory.allocations import alloc_var
from tilec.language.values.functions.integers import ceildiv
from tilec.language.values.functions.intrinsics import FUNCTIONS
from tilec.language.values.kernel.places import source_error
from tilec.language.values.value import resolve

_maximum, _minimum = FUNCTIONS["max"], FUNCTIONS["min"]


class PersistentTileScheduler:
    """Tiles of a grid of ``num_m_tiles`` x ``num_n_tiles`` for ``num_workers`` workers (default: the
    multiprocessors of the device over ``cluster_size``), in bands of ``swizzle_size``::

        tiles = T.PersistentTileScheduler(m_tiles, n_tiles, workers, swizzle_size=8)
        tiles.init(worker)
        while tiles.valid():
            ...  # tiles.m_idx, tiles.n_idx, tiles.linear_idx, tiles.current_iter
            tiles.next_tile()

    With ``column_major`` m runs within a band, else n. A cluster of ``cluster_size`` blocks takes neighbours
    along m together: ``m_idx`` counts such groups. With ``stateful=False`` there is `coord` alone. Raises
    `SourceValueError` for sizes below 1."""

    def __init__(
        self,
        num_m_tiles: Any,
        num_n_tiles: Any,
        num_workers: Any = None,
        swizzle_size: int = 1,
        column_major: bool = True,
        cluster_size: int = 1,
        stateful: bool = True,
        name: str | None = None,
    ) -> None:
        for what, size in (("swizzle_size", swizzle_size), ("cluster_size", cluster_size)):
            if not isinstance(size, int) or size < 1:
                raise source_error(
                    SourceValueError,
                    f"{what} = {size!r} of a tile scheduler",
                    construct="T.PersistentTileScheduler",
                    remedy="give a positive integer",
                )
        groups, columns = ceildiv(resolve(num_m_tiles), cluster_size), resolve(num_n_tiles)
        self._fast, self._slow = (groups, columns) if column_major else (columns, groups)
        self._swizzle, self._column_major = swizzle_size, column_major
        self._workers = _workers(cluster_size) if num_workers is None else resolve(num_workers)
        self._state: dict[str, Any] = {}
        if stateful:
            self._state = {part: alloc_var("int32") for part in ("linear", "iteration", "m", "n")}

    def init(self, worker: Any) -> None:
        """Start with the first tile of ``worker``, 0 to ``num_workers`` - 1."""
        self._store(linear=worker, iteration=0)

    def next_tile(self) -> None:
        """Go on to the worker's next tile."""
        self._store(linear=self.linear_idx + self._workers, iteration=self.current_iter + 1)

    def valid(self) -> Any:
        """Whether the tile at hand exists."""
        return self.linear_idx < self._fast * self._slow

    def coord(self, tile_id: Any) -> tuple[Any, Any]:
        """The (m, n) of a tile by its number."""
        band = self._fast * self._swizzle
        base = tile_id // band * self._swizzle
        width = _maximum(1, _minimum(self._swizzle, self._slow - base))
        rest = tile_id % band
        fast, slow = rest // width, base + rest % width
        return (fast, slow) if self._column_major else (slow, fast)

    @property
    def linear_idx(self) -> Any:
        """The number of the tile at hand."""
        return self._part("linear")

    @property
    def current_iter(self) -> Any:
        """How many tiles the worker has taken before."""
        return self._part("iteration")

    @property
    def m_idx(self) -> Any:
        """The row of the tile at hand."""
        return self._part("m")

    @property
    def n_idx(self) -> Any:
        """The column of the tile at hand."""
        return self._part("n")

    def _part(self, part: str) -> Any:
        if self._state:
            return self._state[part]
        raise source_error(
            SourceRuntimeError,
            "a tile scheduler with stateful=False has no tile at hand",
            construct="T.PersistentTileScheduler",
            remedy="use coord(tile_id), or leave stateful out",
        )

    def _store(self, **parts: Any) -> None:
        self._part("linear")
        for part, value in parts.items():
            self._state[part].store(resolve(value))
        m, n = self.coord(self.linear_idx)
        self._state["m"].store(m)
        self._state["n"].store(n)


def _workers(cluster_size: int) -> Any:
    """A worker for every cluster of multiprocessors."""
    return _maximum(1, multiprocessors() // cluster_size)
