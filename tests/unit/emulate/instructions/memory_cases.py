"""Instructions that reach shared memory of a block or of its cluster: matrices, copies, barriers."""

from __future__ import annotations

import numpy as np
from case_kernels import SYNC_PROXIES, Case, asm, fill, read_back, words

from tilec.backends.cuda.launch import TensorMapCode

# ---- matrices of 8 x 8 ----

_ROW = "unsigned address = (unsigned)__cvta_generic_to_shared(shared) + (unsigned)(thread * 7 % 32 * 32);"


def matrix_cases() -> list[Case]:
    """ldmatrix and stmatrix."""
    return [
        make(count, trans)
        for count in (1, 2, 4)
        for trans in ("", ".trans")
        for make in (_matrix_load, _matrix_store)
    ]


def _matrix_load(count: int, trans: str) -> Case:
    holes = ", ".join(f"%{at}" for at in range(count))
    load = asm(
        f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{holes}}}, [%{count}];",
        ", ".join(f'"=r"(word{at})' for at in range(count)),
        '"r"(address)',
    )
    declare = " ".join(f"unsigned word{at};" for at in range(count))
    write = " ".join(f"out[thread * {count} + {at}] = word{at};" for at in range(count))
    source = f"""{fill(32, 256)}
  __syncthreads();
  {_ROW}
  {declare}
  {load}
  {write}"""
    return Case(f"ldmatrix_x{count}{trans.replace('.', '_')}", source, words(256), 32 * count)


def _matrix_store(count: int, trans: str) -> Case:
    holes = ", ".join(f"%{at + 1}" for at in range(count))
    given = ", ".join(f'"r"(in[256 + thread * {count} + {at}])' for at in range(count))
    store = asm(
        f"stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%0], {{{holes}}};",
        "",
        f'"r"(address), {given}',
    )
    source = f"""{fill(32, 256)}
  __syncthreads();
  {_ROW}
  {store}
  __syncthreads();
  {read_back(32, 256)}"""
    return Case(f"stmatrix_x{count}{trans.replace('.', '_')}", source, words(256 + 128), 256)


# ---- loads and stores ----


def access_cases() -> list[Case]:
    """ld and st in vectors, atomic updates by instructions."""
    given = [f'"r"(in[thread * 8 + {at}])' for at in range(8)]

    def put(kind: str, offset: int, first: int, count: int) -> str:
        holes = ", ".join(f"%{at + 1}" for at in range(count))
        value = f"{{{holes}}}" if count > 1 else holes
        text = f"st.shared.{kind}b32 [%0 + {offset}], {value};"
        return asm(text, "", ", ".join(['"r"(base)', *given[first : first + count]]))

    vectors = f"""unsigned base = (unsigned)__cvta_generic_to_shared(shared) + (unsigned)(thread * 32);
  {put("v4.", 0, 0, 4)}
  {put("v2.", 16, 4, 2)}
  {put("", 24, 6, 1)}
  {put("", 28, 7, 1)}
  __syncthreads();
  unsigned a, b, c, d;
  unsigned other = (unsigned)__cvta_generic_to_shared(shared) + (unsigned)((31 - thread) * 32);
  {asm("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4 + 16];", '"=r"(a), "=r"(b), "=r"(c), "=r"(d)', '"r"(other)')}
  unsigned short low;
  {asm("ld.shared.u16 %0, [%1 + 2];", '"=h"(low)', '"r"(other)')}
  out[thread * 5] = a; out[thread * 5 + 1] = b; out[thread * 5 + 2] = c; out[thread * 5 + 3] = d;
  out[thread * 5 + 4] = (unsigned)low;"""
    updates = f"""if (thread < 4) out[thread] = 0u;
  __syncthreads();
  unsigned old;
  {asm("atom.global.add.u32 %0, [%1], %2;", '"=r"(old)', '"l"(out), "r"(in[thread] & 0xffu)')}
  {asm("atom.global.max.u32 %0, [%1], %2;", '"=r"(old)', '"l"(out + 1), "r"(in[thread])')}
  {asm("red.global.add.f32 [%0], %1;", "", '"l"(out + 2), "f"((float)(in[thread] & 0xffu))')}
  {asm("red.global.or.b32 [%0], %1;", "", '"l"(out + 3), "r"(in[thread] & 0xff00u)')}"""
    return [Case("ld_st", vectors, words(256), 160), Case("atom", updates, words(32), 4)]


# ---- copies ----

WAIT = asm(
    "{ .reg .pred done; again: mbarrier.try_wait.parity.shared.b64 done, [%0], %1; "
    "@done bra over; bra again; over: }",
    "",
    '"r"(full), "r"(0)',
)


def setup(barrier: int) -> str:
    """An mbarrier for one arrival behind ``barrier`` bytes."""
    init = asm("mbarrier.init.shared.b64 [%0], %1;", "", '"r"(full), "r"(1u)')
    return f"""unsigned base = (unsigned)__cvta_generic_to_shared(shared);
  unsigned full = base + {barrier}u;
  if (thread == 0) {{
    {init}
    {asm("fence.mbarrier_init.release.cluster;")}
    {SYNC_PROXIES}
  }}"""


def expect(count: int) -> str:
    return asm("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;", "", f'"r"(full), "r"({count}u)')


def committed() -> str:
    return f"{asm('cp.async.bulk.commit_group;')}\n    {asm('cp.async.bulk.wait_group 0;')}"


def copy_cases() -> list[Case]:
    """cp.async, bulk copies, tensor copies."""
    boxes = [
        ("none", 2, (16, 9), 0, (0, 0)),
        ("edge", 2, (16, 9), 0, (28, 20)),
        ("swizzle_32", 2, (8, 16), 32, (4, 3)),
        ("swizzle_64", 2, (16, 16), 64, (8, 10)),
        ("swizzle_128", 2, (32, 16), 128, (28, 12)),
        ("three_axes", 3, (16, 4, 3), 64, (4, 5, 1)),
    ]
    tensors = [make(*box) for box in boxes for make in (_tma_load, _tma_store)]
    below = ("below", 2, (32, 16), 128, (-4, -2))
    return [_cp_async(), _bulk(), *tensors, _tma_load(*below)]


def _cp_async() -> Case:
    counted = asm("cp.async.cg.shared.global [%0], [%1], 16, %2;", "",
                  '"r"(to), "l"(in + thread * 4), "r"((int)(in[thread] % 17u))')  # fmt: skip
    predicated = asm(
        "{ .reg .pred none; setp.eq.s32 none, %2, 0; cp.async.ca.shared.global [%0], [%1], 8, none; }",
        "",
        '"r"(to + 512u), "l"(in + 256 + thread * 2), "r"(thread % 3)',
    )
    source = f"""{fill(32, 256)}
  __syncthreads();
  unsigned base = (unsigned)__cvta_generic_to_shared(shared);
  unsigned to = base + (unsigned)(thread * 16);
  {counted}
  {asm("cp.async.commit_group;")}
  {predicated}
  {asm("cp.async.commit_group;")}
  {asm("cp.async.wait_group 0;")}
  __syncthreads();
  {read_back(32, 256)}"""
    return Case("cp_async", source, words(320), 256)


def _bulk() -> Case:
    load = asm(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];",
        "",
        '"r"(base + 256u), "l"(in + 4), "r"(512), "r"(full)',
    )
    store = asm("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;", "",
                '"l"(out + 256), "r"(base), "r"(256)')  # fmt: skip
    source = f"""{setup(1024)}
  {fill(32, 256)}
  {SYNC_PROXIES}
  __syncthreads();
  if (thread == 0) {{
    {expect(512)}
    {load}
  }}
  {WAIT}
  {read_back(32, 256)}
  if (thread == 0) {{
    {store}
    {committed()}
  }}"""
    return Case("cp_bulk", source, words(256), 320, shared=1040)


#: Words of the tensor that tensor maps of these cases cover: 6 planes of 24 rows of 40.
_EXTENTS, TENSOR = (40, 24, 6), 40 * 24 * 6


def _map(tensor: int, axes: int, box: tuple[int, ...], swizzle: int) -> TensorMapCode:
    steps = ("160", "3840")[: axes - 1]
    return TensorMapCode(tensor, "float32", tuple(map(str, _EXTENTS[:axes])), steps, box, swizzle)


def size_of(box: tuple[int, ...]) -> int:
    """Words of a box, up to whole rows of threads."""
    return -(-int(np.prod(box)) // 32) * 32


def box_case(name: str, box: tuple[int, ...], load: str, tensor: TensorMapCode) -> Case:
    """One thread has ``load`` bring a box of words, the block reads it back."""
    size = size_of(box)
    source = f"""{setup(size * 4)}
  for (int at = 0; at < {size // 32}; ++at) ((unsigned*)shared)[at * 32 + thread] = 7u;
  {SYNC_PROXIES}
  __syncthreads();
  if (thread == 0) {{
    {expect(int(np.prod(box)) * 4)}
    {load}
  }}
  {WAIT}
  {read_back(32, size)}"""
    return Case(name, source, words(TENSOR), size, shared=size * 4 + 16, maps=(tensor,))


def _tma_load(name: str, axes: int, box: tuple[int, ...], swizzle: int, start: tuple[int, ...]) -> Case:
    holes = ", ".join(f"%{at + 2}" for at in range(axes))
    given = ", ".join(f'"r"({at})' for at in start)
    load = asm(
        f"cp.async.bulk.tensor.{axes}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        f"[%0], [%1, {{{holes}}}], [%{axes + 2}];",
        "",
        f'"r"(base), "l"(map0), {given}, "r"(full)',
    )
    return box_case(f"tma_load_{name}", box, load, _map(0, axes, box, swizzle))


def _tma_store(name: str, axes: int, box: tuple[int, ...], swizzle: int, start: tuple[int, ...]) -> Case:
    size = size_of(box)
    holes = ", ".join(f"%{at + 1}" for at in range(axes))
    given = ", ".join(f'"r"({at})' for at in start)
    store = asm(
        f"cp.async.bulk.tensor.{axes}d.global.shared::cta.tile.bulk_group [%0, {{{holes}}}], [%{axes + 1}];",
        "",
        f'"l"(map0), {given}, "r"(base)',
    )
    source = f"""unsigned base = (unsigned)__cvta_generic_to_shared(shared);
  {fill(32, size)}
  {SYNC_PROXIES}
  __syncthreads();
  if (thread == 0) {{
    {store}
    {committed()}
  }}"""
    maps = (_map(1, axes, box, swizzle),)
    return Case(f"tma_store_{name}", source, words(size), TENSOR, shared=size * 4, maps=maps)


# ---- clusters and barriers ----

_CLUSTER_SYNC = f"{asm('barrier.cluster.arrive.aligned;')}\n  {asm('barrier.cluster.wait.aligned;')}"


def cluster_cases() -> list[Case]:
    """What blocks of a cluster do to each other, and phases of an mbarrier."""
    return [_exchange(), _multicast(), _remote_arrival(), _counts()]


def _exchange() -> Case:
    mapped = asm("mapa.shared::cluster.u32 %0, %1, %2;", '"=r"(other)', '"r"(own), "r"(1 - rank)')
    source = f"""unsigned base = (unsigned)__cvta_generic_to_shared(shared);
  unsigned own = base + (unsigned)(thread * 4);
  ((unsigned*)shared)[thread] = in[rank * 32 + thread];
  {_CLUSTER_SYNC}
  unsigned other, word;
  {mapped}
  {asm("ld.shared::cluster.b32 %0, [%1];", '"=r"(word)', '"r"(other)')}
  out[rank * 64 + thread] = word;
  {asm("st.shared::cluster.b32 [%0], %1;", "", '"r"(other + 128u), "r"(word + 1u)')}
  {_CLUSTER_SYNC}
  out[rank * 64 + 32 + thread] = ((unsigned*)shared)[32 + thread];"""
    return Case("cluster_exchange", source, words(64), 128, blocks=2, cluster=2)


def _multicast() -> Case:
    load = asm(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%2, %3}], [%4], %5;",
        "",
        '"r"(base + (unsigned)(rank * 512)), "l"(map0), "r"(16 * rank), "r"(4), "r"(full), '
        '"h"((unsigned short)3)',
    )
    source = f"""{setup(1024)}
  {_CLUSTER_SYNC}
  if (thread == 0) {{
    {expect(1024)}
    {load}
  }}
  {WAIT}
  {read_back(32, 256, "rank * 256")}
  {_CLUSTER_SYNC}"""
    maps = (_map(0, 2, (16, 8), 64),)
    return Case("cluster_multicast", source, words(TENSOR), 512, blocks=2, cluster=2, shared=1040, maps=maps)


def _remote_arrival() -> Case:
    """Each block hands the other a word, and tells so at the other's mbarrier."""
    source = f"""{setup(1024)}
  {_CLUSTER_SYNC}
  unsigned other, there;
  {asm("mapa.shared::cluster.u32 %0, %1, %2;", '"=r"(other)', '"r"(base), "r"(1 - rank)')}
  {asm("mapa.shared::cluster.u32 %0, %1, %2;", '"=r"(there)', '"r"(full), "r"(1 - rank)')}
  if (thread == 0) {{
    {asm("st.shared::cluster.b32 [%0], %1;", "", '"r"(other), "r"(in[rank])')}
    {asm("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];", "", '"r"(there)')}
  }}
  {WAIT.replace("parity.shared", "parity.acquire.cluster.shared::cta")}
  out[rank * 32 + thread] = ((unsigned*)shared)[0];
  {_CLUSTER_SYNC}"""
    return Case("cluster_arrival", source, words(2), 64, blocks=2, cluster=2, shared=1040)


def _counts() -> Case:
    def passed(parity: int) -> str:
        text = "{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        return asm(text, '"=r"(passed)', f'"r"(full), "r"({parity})')

    source = f"""unsigned full = (unsigned)__cvta_generic_to_shared(shared);
  if (thread == 0) {asm("mbarrier.init.shared.b64 [%0], %1;", "", '"r"(full), "r"(64u)')}
  __syncthreads();
  unsigned passed;
  {passed(1)}
  out[thread] = passed;
  {passed(0)}
  out[32 + thread] = passed;
  __syncthreads();
  {asm("mbarrier.arrive.shared.b64 _, [%0], %1;", "", '"r"(full), "r"(2u)')}
  {WAIT}
  {passed(0)}
  out[64 + thread] = passed;"""
    return Case("mbarrier_counts", source, words(1), 96)
