"""``tilec.utils.sparse``: operands of ``T.gemm_sp``, two values of each group of four and where they are.

The places are rows of integers that hold four bits for each group of four, the lowest first: two for the
place of the first value, two for that of the second (PTX ISA, "Sparse matrix storage"). Needs torch.
"""

from __future__ import annotations

from typing import Any

from tilec.dtypes import lookup
from tilec.errors import InputError
from tilec.language.values.scalars import dtype as make_dtype

#: What holds the places, by the bits of an element: as integers of 16 bits or of 32; bytes on Hopper.
_WORDS = {16: "int16", 8: "int32"}


def get_e_factor(a_dtype: Any, e_dtype: Any) -> int:
    """How many columns of the dense operand one integer of ``e_dtype`` covers: as many as it has bits.

    Raises:
        InputError: for an operand that is neither of 16 nor of 8 bits.
    """
    _bits_of(make_dtype(a_dtype))
    return lookup(str(make_dtype(e_dtype))).bits


def compress(A: Any, transposed: bool = False, arch: Any = None, block_k: int | None = None, **_: Any) -> Any:
    """The values and their places of a dense operand (M, K), or (K, M) if ``transposed``: (M, K/2) and
    (M, K/w), or (K/2, M) and (K/w, M), with w the bits of an integer of places.

    ``arch``: "9.0" holds places in bytes (uint8), others 16-bit operands' in int16 and 8-bit ones' in int32;
    None asks the first GPU. ``block_k`` is the order of CUTLASS and changes nothing here.

    Raises:
        InputError: where a group of four has more than two values other than 0, or K is no multiple of w.
    """
    words = "uint8" if _is_hopper(arch) else None
    return _compressed(A, transposed, words)


def torch_compress(dense: Any) -> Any:
    """`compress` of (M, K) with places in int16 (16-bit operands) or int32 (8-bit ones)."""
    return _compressed(dense, False, None)


def decompress(A_sparse: Any, E: Any, transposed: bool = False) -> Any:
    """The dense operand of `compress`'s results."""
    import torch

    values, words = (part.t().contiguous() if transposed else part.contiguous() for part in (A_sparse, E))
    octets = words.view(torch.uint8)
    fours = torch.stack([octets & 15, octets >> 4], dim=-1).flatten(1)
    at = torch.stack([fours & 3, fours >> 2], dim=-1).long()
    dense = torch.zeros((*fours.shape, 4), dtype=values.dtype, device=values.device)
    for place in (1, 0):
        dense.scatter_(2, at[..., place : place + 1], values.view(*fours.shape, 2)[..., place : place + 1])
    return _turned(dense.flatten(1), transposed)


def randn_semi_sparse(
    M: int, K: int, dtype: Any = "float16", device: Any = None, transposed: bool = False
) -> Any:
    """Normal numbers (M, K), or (K, M), of which each group of four along K has two, the others being 0."""
    import torch

    return _thinned(torch.randn(M, K, device=_device(device)), dtype, transposed)


def randint_semi_sparse(
    M: int, K: int, low: int, high: int, dtype: Any = "int32", device: Any = None, transposed: bool = False
) -> Any:
    """As `randn_semi_sparse`, of integers from ``low`` to below ``high``."""
    import torch

    return _thinned(torch.randint(low, high, (M, K), device=_device(device)), dtype, transposed)


def arange_semi_sparse(
    M: int, K: int, dtype: Any = "float16", device: Any = None, transposed: bool = False
) -> Any:
    """As `randn_semi_sparse`, of the numbers 0, 1, 2, ... by rows; each group has its first two."""
    import torch

    numbers = torch.arange(M * K, device=_device(device)).view(M, K // 4, 4)
    numbers[..., 2:] = 0
    return _turned(numbers.view(M, K).to(_torch_type(dtype)), transposed)


# ---- parts ----


def _compressed(dense: Any, transposed: bool, words: str | None) -> tuple[Any, Any]:
    import torch

    rows = dense.t().contiguous() if transposed else dense.contiguous()
    kind = make_dtype(dense.dtype)
    words = words or _WORDS[_bits_of(kind)]
    width = lookup(words).bits
    if rows.shape[1] % max(width, 8):
        raise InputError(
            f"K = {rows.shape[1]} is no multiple of {max(width, 8)}",
            why=f"one {words} holds the places of {width} columns",
            remedy="fill K up with zeros",
        )
    groups = rows.view(len(rows), -1, 4)
    there = groups.to(torch.float32) != 0
    _check_two(there)
    # the places of what is not 0 first, then others, and both in order
    at = torch.argsort(there.logical_not().to(torch.uint8), dim=-1, stable=True)[..., :2].sort(dim=-1).values
    octets = groups.view(torch.uint8) if groups.element_size() == 1 else groups
    values = torch.gather(octets, 2, at).view(groups.dtype).flatten(1)
    fours = (at[..., 0] | at[..., 1] << 2).to(torch.uint8)
    places = (fours[:, 0::2] | fours[:, 1::2] << 4).contiguous().view(getattr(torch, words))
    return _turned(values, transposed), _turned(places, transposed)


def _check_two(there: Any) -> None:
    crowded = there.sum(dim=-1) > 2
    if not bool(crowded.any()):
        return
    row, group = crowded.nonzero()[0].tolist()
    raise InputError(
        f"row {row} has more than two values other than 0 in columns {4 * group} to {4 * group + 3}",
        why="a sparse operand has at most two in each group of four along K",
        remedy="set the others to 0 first",
    )


def _thinned(numbers: Any, dtype: Any, transposed: bool) -> Any:
    import torch

    groups = numbers.view(len(numbers), -1, 4)
    kept = torch.rand(groups.shape, device=numbers.device).argsort(dim=-1) < 2
    return _turned((groups * kept).view(numbers.shape).to(_torch_type(dtype)), transposed)


def _turned(rows: Any, transposed: bool) -> Any:
    return rows.t().contiguous() if transposed else rows


def _torch_type(spec: Any) -> Any:
    return make_dtype(spec).as_torch()


def _bits_of(kind: make_dtype) -> int:
    if kind.bits not in _WORDS:
        raise InputError(
            f"{kind} is no type of a sparse operand",
            why="groups of four with two values are of 16-bit and 8-bit types",
            remedy="use float16, bfloat16, an 8-bit float or an 8-bit integer",
        )
    return kind.bits


def _device(device: Any) -> Any:
    import torch

    return device or ("cuda" if torch.cuda.is_available() else "cpu")


def _is_hopper(arch: Any) -> bool:
    import torch

    if arch is None:
        return bool(torch.cuda.is_available() and torch.cuda.get_device_capability()[0] == 9)
    return str(arch).removeprefix("sm_").startswith("9")
