"""Stores to shared memory of another block of the cluster. Counted ones tell a barrier of that block of their
bytes: who waits there sees them, and no thread waits for another one before it tells.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from tilec.backends.cuda.device.helper import Helper, Lanes

#: By the bits of an element: what C calls them, and the letter of their registers in assembly.
_ELEMENTS = {
    8: ("unsigned", "r"),
    16: ("unsigned short", "h"),
    32: ("unsigned", "r"),
    64: ("unsigned long", "l"),
}
_VECTORS = {4: "", 8: ".v2", 16: ".v4"}
_ASYNC = "st.async.shared::cluster.mbarrier::complete_tx::bytes"
_COMPLETE = "mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64"
_FENCE = "fence.acq_rel.cluster"
_TEXT = """
__device__ __forceinline__ void {name}(void* at, {parameter}, int block{more}) {{
  unsigned place = (unsigned)__cvta_generic_to_shared(at);{begin}
  asm volatile("{{ .reg .b32 to, done; mapa.shared::cluster.u32 to, %0, %1; {body} }}"
               :: "r"(place), "r"(block){operands} : "memory");
}}
"""
_BARRIER = "\n  unsigned barrier = (unsigned)__cvta_generic_to_shared(counting);"


@cache
def store_remote(size: int, counted: bool = False) -> Helper:
    """Stores an element of ``size`` bits to the same place of another block. Counted bytes of less than four
    are told of behind a fence: no store tells of so few."""
    kind, letter = _ELEMENTS[size]
    tells, name = counted and size >= 32, f"tilec_store_remote_{size}" + "_counted" * counted
    store = f"{_ASYNC}.b{size}" if tells else f"st.shared::cluster.b{size}"
    told = f" {_FENCE}; {_COMPLETE} [done], {size // 8};" if counted and not tells else ""
    body = f"{store} [to], %2{', [done]' * tells};{told}"

    def meaning(lanes: Lanes, at: Any, value: Any, block: Any, barrier: Any = None) -> None:
        to = lanes.ptx("mapa.shared::cluster.u32", lanes.shared(at), block)
        if not counted:
            lanes.ptx(store, to, value)
            return
        done = lanes.ptx("mapa.shared::cluster.u32", lanes.shared(barrier), block)
        lanes.ptx(store, to, value, *[done] * tells)
        if not tells:
            lanes.ptx(_FENCE)
            lanes.ptx(_COMPLETE, done, size // 8)

    return Helper(name, _text(name, f"{kind} value", body, f', "{letter}"(value)', "", counted, 3), meaning)


@cache
def send(size: int, counted: bool) -> Helper:
    """Stores 4, 8 or 16 bytes of registers to the same place of another block at once."""
    name = f"tilec_send_{size}" + "_counted" * counted
    store = f"{_ASYNC if counted else 'st.shared::cluster'}{_VECTORS[size]}.b32"
    count = size // 4
    places = ", ".join(f"%{2 + word}" for word in range(count))
    listed = f"{{{places}}}" if count > 1 else places
    body = f"{store} [to], {listed}{', [done]' * counted};"

    def meaning(lanes: Lanes, at: Any, source: Any, block: Any, barrier: Any = None) -> None:
        words = [lanes.load(source, "uint32", word) for word in range(count)]
        to = lanes.ptx("mapa.shared::cluster.u32", lanes.shared(at), block)
        done = [lanes.ptx("mapa.shared::cluster.u32", lanes.shared(barrier), block)] if counted else []
        lanes.ptx(store, to, *words, *done)

    operands = "".join(f', "r"(word[{word}])' for word in range(count))
    begin = "\n  const unsigned* word = (const unsigned*)from;"
    return Helper(name, _text(name, "const void* from", body, operands, begin, counted, 2 + count), meaning)


@cache
def send_four(kind: str) -> Helper:
    """Stores four registers, ``kind`` "f32" or "b32", to a place of another block whose barrier there counts
    them; both are shared addresses of the cluster."""
    name, store = f"tilec_send_four_{kind}", f"{_ASYNC}.v4.{kind}"
    held, letter = ("float", "f") if kind == "f32" else ("unsigned", "r")
    values = ", ".join(f'"{letter}"({each})' for each in "abcd")
    text = f"""
__device__ __forceinline__ void {name}(unsigned to, unsigned done, {held} a, {held} b, {held} c, {held} d) {{
  asm volatile("{store} [%0], {{%2, %3, %4, %5}}, [%1];" :: "r"(to), "r"(done), {values} : "memory");
}}
"""

    def meaning(lanes: Lanes, to: Any, done: Any, *values: Any) -> None:
        lanes.ptx(store, to, *values, done)

    return Helper(name, text, meaning)


def _text(name: str, parameter: str, body: str, operands: str, begin: str, counted: bool, free: int) -> str:
    """The function; ``free`` is the number of the first operand behind its own."""
    if counted:
        body = f"mapa.shared::cluster.u32 done, %{free}, %1; {body}"
        operands, begin = operands + ', "r"(barrier)', begin + _BARRIER
    more = ", void* counting" * counted
    return _TEXT.format(name=name, parameter=parameter, more=more, begin=begin, body=body, operands=operands)
