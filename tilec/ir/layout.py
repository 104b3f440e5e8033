"""Where the elements of a tile lie: digit maps from logical indices to places."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Digit:
    """One digit of a mixed-radix index: ``size`` values, each ``stride`` places apart in ``space``.

    Spaces: "addr" for memory; "reg", "lane", "warp", "group" for fragments spread over threads."""

    size: int
    stride: int
    space: str = "addr"


@dataclass(frozen=True)
class Layout:
    """Per logical dimension its digits, least significant first: 64 = 32:1 then 2:8192 is a panel of 32.

    A dimension's extent is the product of its digits' sizes (padding included)."""

    digits: tuple[tuple[Digit, ...], ...]
