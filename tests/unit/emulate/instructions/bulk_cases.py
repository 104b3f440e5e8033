"""Bulk copies that walk over images, and bulk reductions."""

from __future__ import annotations

import numpy as np
from case_kernels import SYNC_PROXIES, Case, Inputs, asm, fill, floats, packed, words
from memory_cases import box_case, committed

from tilec.backends.cuda.launch import TensorMapCode, WindowCode


def image_cases() -> list[Case]:
    """Pixels of windows: (extents, box, swizzle, window, start, tap)."""
    window = WindowCode
    plane, volume = (8, 12, 10, 6), (8, 5, 4, 6, 6)
    return [
        _image_load("line", (8, 120, 6), (8, 32), 32, window((-2,), (-1,), (3,)), (0, 4, 1), (3,)),
        _image_load("plane", plane, (8, 48), 32, window((-1, -1), (-1, -1), (1, 1)), (0, 3, 2, 0), (2, 0)),
        _image_load("oblong", plane, (4, 40), 0, window((-3, -1), (2, -2), (2, 3)), (4, 1, 5, 3), (1, 2)),
        _image_load("end", plane, (8, 64), 32, window((0, -2), (-2, 0), (1, 2)), (0, 9, 6, 5), (2, 2)),
        _image_load("volume", volume, (8, 64), 32, window((-1, -1, -1), (-1, -1, -2), (1, 2, 1)),
                    (0, 2, 1, 3, 1), (1, 2, 0)),
    ]  # fmt: skip


def _image_load(
    name: str,
    extents: tuple[int, ...],
    box: tuple[int, ...],
    swizzle: int,
    window: WindowCode,
    start: tuple[int, ...],
    tap: tuple[int, ...],
) -> Case:
    axes = len(extents)
    strides = tuple(str(4 * int(np.prod(extents[: at + 1]))) for at in range(axes - 1))
    coordinates = ", ".join(f"%{at + 2}" for at in range(axes))
    offsets = ", ".join(f"%{at + axes + 3}" for at in range(axes - 2))
    given = ", ".join(f'"r"({at})' for at in start)
    moved = ", ".join(f'"h"((unsigned short){at})' for at in tap)
    load = asm(
        f"cp.async.bulk.tensor.{axes}d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
        f"[%0], [%1, {{{coordinates}}}], [%{axes + 2}], {{{offsets}}};",
        "",
        f'"r"(base), "l"(map0), {given}, "r"(full), {moved}',
    )
    found = TensorMapCode(0, "float32", tuple(map(str, extents)), strides, box, swizzle, window)
    return box_case(f"tma_image_{name}", box, load, found)


_REDUCED = 256


def reduce_cases() -> list[Case]:
    """Bulk reductions into what the kernel has written before, by types."""
    half = packed(2 * _REDUCED, np.float16)
    return [
        _reduce("add_u32", "add.u32", words(2 * _REDUCED)),
        _reduce("min_s32", "min.s32", words(2 * _REDUCED)),
        _reduce("max_u32", "max.u32", words(2 * _REDUCED)),
        _reduce("xor_b32", "xor.b32", words(2 * _REDUCED)),
        _reduce("add_f32", "add.f32", floats(2 * _REDUCED)),
        _reduce("add_f16", "add.noftz.f16", half),
        _reduce("min_f16", "min.f16", half),
        _reduce_box("add"),
        _reduce_box("max"),
    ]


def _reduce(name: str, operation: str, given: Inputs) -> Case:
    reduce = asm(
        f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{operation} [%0], [%1], %2;",
        "",
        f'"l"(out), "r"(base), "r"({_REDUCED * 4})',
    )
    return _combined(f"bulk_{name}", reduce, given, ())


def _reduce_box(operation: str) -> Case:
    reduce = asm(
        f"cp.reduce.async.bulk.tensor.2d.global.shared::cta.{operation}.tile.bulk_group "
        "[%0, {%1, %2}], [%3];",
        "",
        '"l"(map0), "r"(8), "r"(3), "r"(base)',
    )
    found = TensorMapCode(1, "uint32", ("16", "16"), ("64",), (8, 16), 32)
    return _combined(f"tensor_{operation}", reduce, words(2 * _REDUCED), (found,))


def _combined(name: str, reduce: str, given: Inputs, maps: tuple[TensorMapCode, ...]) -> Case:
    source = f"""unsigned base = (unsigned)__cvta_generic_to_shared(shared);
  {fill(32, _REDUCED)}
  for (int at = 0; at < {_REDUCED // 32}; ++at) out[at * 32 + thread] = in[{_REDUCED} + at * 32 + thread];
  __threadfence();
  {SYNC_PROXIES}
  __syncthreads();
  if (thread == 0) {{
    {reduce}
    {committed()}
  }}"""
    return Case(f"reduce_{name}", source, given, _REDUCED, shared=_REDUCED * 4, maps=maps)
