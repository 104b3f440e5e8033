"""Tiled matrix products as tile IR text, in the forms that authors write them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

#: What follows the product: statements on ``acc`` and ``C``, parameters they need.
STORE = "    copy(acc[0:+{bM}, 0:+{bN}], C[by * {bM}:+{bM}, bx * {bN}:+{bN}])"
BIAS_RESIDUAL = """\
    for i, j in parallel({bM}, {bN}):
        acc[i, j] = max(acc[i, j] + bias[bx * {bN} + j], 0.0)
    for i, j in parallel({bM}, {bN}):
        C[by * {bM} + i, bx * {bN} + j] = acc[i, j] + R[by * {bM} + i, bx * {bN} + j]"""
ROW_SUM = """\
    total = alloc(float32, ({bM},), "local.fragment")
    reduce_sum(acc[0:+{bM}, 0:+{bN}], total[0:+{bM}], axis=1, clear=True)
    for i, j in parallel({bM}, {bN}):
        C[by * {bM} + i, bx * {bN} + j] = acc[i, j] / total[i]"""
ROW_MAX = """\
    top = alloc(float32, ({bM},), "local.fragment")
    fill(top[0:+{bM}], 0.0)
    for i, j in parallel({bM}, {bN}):
        top[i] = max(top[i], acc[i, j])
    for i, j in parallel({bM}, {bN}):
        C[by * {bM} + i, bx * {bN} + j] = acc[i, j] - top[i]"""
STAGED = """\
    half = alloc({dtype}, ({bM}, {bN}), "local.fragment")
    out = alloc({dtype}, ({bM}, {bN}), "shared.dyn")
    copy(acc[0:+{bM}, 0:+{bN}], half[0:+{bM}, 0:+{bN}])
    copy(half[0:+{bM}, 0:+{bN}], out[0:+{bM}, 0:+{bN}])
    copy(out[0:+{bM}, 0:+{bN}], C[by * {bM}:+{bM}, bx * {bN}:+{bN}])"""


@dataclass(frozen=True)
class Product:
    """C[M, N] = op(A) @ op(B) in tiles; extents that are None are run-time dims. ``panel``: B is packed ahead
    as (N // panel, K, panel). ``clears``: by the product's own flag instead of a fill. ``b_dtype``: of B,
    where it is another; ``a_dtype``: of A, where its tile is of ``dtype``. ``whole``: of what a run-time K is
    a multiple."""

    M: int | None = None
    N: int | None = None
    K: int | None = None
    bM: int = 32
    bN: int = 64
    bK: int = 16
    dtype: str = "float32"
    b_dtype: str = ""
    a_dtype: str = ""
    acc: str = "float32"
    out: str = "float32"
    trans_a: bool = False
    trans_b: bool = False
    panel: int = 0
    clears: bool = False
    whole: int = 1
    epilogue: str = STORE

    @property
    def extended(self) -> bool:
        """Whether the epilogue reads a bias and a residual."""
        return self.epilogue is BIAS_RESIDUAL

    def text(self, name: str) -> str:
        """The kernel."""
        M, N, K = (self._name(name) for name in "MNK")
        lines = [f'kernel("{name}")', *(self._dim(dim) for dim in "MNK")]
        lines += [self._tensor("A", *((K, M) if self.trans_a else (M, K)), dtype=self.a_dtype)]
        lines += [self._tensor("B", *self._b_shape(N, K), dtype=self.b_dtype)]
        if self.extended:
            lines += [self._tensor("bias", N, dtype="float32"), self._tensor("R", M, N, dtype="float32")]
        lines += [self._tensor("C", M, N, dtype=self.out, access="out")]
        lines += [f"with launch(({N} + {self.bN - 1}) // {self.bN}, ({M} + {self.bM - 1}) // {self.bM}, "
                  "threads=(128, 1, 1)) as (bx, by):"]  # fmt: skip
        lines += self._body(K)
        fields = {"bM": self.bM, "bN": self.bN, "dtype": self.out}
        return "\n".join([*lines, self.epilogue.format(**fields)]) + "\n"

    def _name(self, dim: str) -> str:
        value = getattr(self, dim)
        return dim if value is None else str(value)

    def _dim(self, dim: str) -> str:
        value = getattr(self, dim)
        if value is not None:
            return f"{dim} = dim(eq={value})"
        divisor = f", div={self.whole}" if dim == "K" and self.whole > 1 else ""
        return f"{dim} = dim(int32{divisor})"

    def _tensor(self, name: str, *shape: str, dtype: str = "", access: str = "in") -> str:
        extents = ", ".join(shape) + ("," if len(shape) == 1 else "")
        texts = ", ".join(f'"{extent}"' for extent in shape) + ("," if len(shape) == 1 else "")
        return f'{name} = tensor({dtype or self.dtype}, ({extents}), ({texts}), access="{access}")'

    def _b_shape(self, N: str, K: str) -> tuple[str, ...]:
        if self.panel:
            return (f"{N} // {self.panel}", K, str(self.panel))
        return (N, K) if self.trans_b else (K, N)

    def _body(self, K: str) -> list[str]:
        bM, bN, bK, panel = self.bM, self.bN, self.bK, self.panel
        a_tile = (bK, bM) if self.trans_a else (bM, bK)
        a_start = (f"ko * {bK}", f"by * {bM}") if self.trans_a else (f"by * {bM}", f"ko * {bK}")
        if panel:
            b_tile, b_start = (bN // panel, bK, panel), (f"bx * {bN // panel}", f"ko * {bK}", "0")
        elif self.trans_b:
            b_tile, b_start = (bN, bK), (f"bx * {bN}", f"ko * {bK}")
        else:
            b_tile, b_start = (bK, bN), (f"ko * {bK}", f"bx * {bN}")
        clear = "False" if not self.clears else "True" if self.bK == self.K else "ko == 0"
        flags = f"trans_a={self.trans_a}, trans_b={self.trans_b}, clear={clear}"
        lines = [
            f'    As = alloc({self.dtype}, {a_tile}, "shared.dyn")',
            f'    Bs = alloc({self.b_dtype or self.dtype}, {b_tile}, "shared.dyn")',
            f'    acc = alloc({self.acc}, {(bM, bN)}, "local.fragment")',
        ]
        if not self.clears:
            zero = {"int32": "0", "float32": "0.0"}.get(self.acc, f"{self.acc}(0.0)")
            lines.append(f"    fill({_whole('acc', (bM, bN))}, {zero})")
        lines += [
            f"    for ko in pipelined(0, ({K} + {bK - 1}) // {bK}, num_stages=2):",
            f"        copy({_region('A', a_start, a_tile)}, {_whole('As', a_tile)})",
            f"        copy({_region('B', b_start, b_tile)}, {_whole('Bs', b_tile)})",
        ]
        if not panel:
            whole = f"{_whole('As', a_tile)}, {_whole('Bs', b_tile)}, {_whole('acc', (bM, bN))}"
            return [*lines, f"        gemm({whole}, {flags})"]
        parts = f"{_whole('As', a_tile)}, Bs[p:+1, 0:+{bK}, 0:+{panel}], acc[0:+{bM}, p * {panel}:+{panel}]"
        return [
            *lines,
            f"        for p in unroll(0, {bN // panel}, 1):",
            f"            gemm({parts}, {flags})",
        ]

    def arguments(self, M: int, N: int, K: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Random inputs and a poisoned output."""
        import ml_dtypes

        def draw(*shape: int, dtype: str = self.dtype) -> np.ndarray:
            kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
            if kind.kind in "iu":
                return rng.integers(np.iinfo(kind).min, np.iinfo(kind).max, shape, dtype=kind, endpoint=True)
            return rng.standard_normal(shape).astype(kind)

        b_shape = (N // self.panel, K, self.panel) if self.panel else (N, K) if self.trans_b else (K, N)
        b = draw(*b_shape, dtype=self.b_dtype or self.dtype)
        extra = (
            [rng.standard_normal(shape).astype(np.float32) for shape in ((N,), (M, N))]
            if self.extended
            else []
        )
        out = np.full((M, N), 99, ml_dtypes.bfloat16 if self.out == "bfloat16" else self.out)
        a = draw(*((K, M) if self.trans_a else (M, K)))
        return [a.astype(self.a_dtype or a.dtype), b, *extra, out]

    def expected(self, args: list[np.ndarray]) -> np.ndarray:
        """What the kernel computes, in float64 or int64."""
        wide = np.int64 if self.acc == "int32" else np.float64
        a, b = args[0].astype(wide), args[1].astype(wide)
        a = a.T if self.trans_a else a
        if self.panel:
            b = b.transpose(1, 0, 2).reshape(b.shape[1], b.shape[0] * b.shape[2])
        product = a @ (b.T if self.trans_b else b)
        if self.extended:
            return np.maximum(product + args[2], 0) + args[3]
        if self.epilogue is ROW_SUM:
            return product / product.sum(axis=1, keepdims=True)
        if self.epilogue is ROW_MAX:
            return product - np.maximum(product.max(axis=1, keepdims=True), 0)
        return product


def _region(buffer: str, start: tuple[str, ...], extent: tuple[int, ...]) -> str:
    return f"{buffer}[{', '.join(f'{s}:+{e}' for s, e in zip(start, extent, strict=True))}]"


def _whole(buffer: str, extent: tuple[int, ...]) -> str:
    return _region(buffer, tuple("0" for _ in extent), extent)
