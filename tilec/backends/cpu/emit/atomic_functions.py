"""The atomic instructions that TIR has no node for: functions in LLVM's language, inlined where called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.llvm_text import with_llvm

if TYPE_CHECKING:
    from tvm.ir import Expr

#: Memory orders of the tile IR as LLVM spells them; "consume" is what compilers make of it, acquire.
_ORDERS = {
    "relaxed": "monotonic",
    "consume": "acquire",
    "acquire": "acquire",
    "release": "release",
    "acq_rel": "acq_rel",
    "seq_cst": "seq_cst",
}

#: What a failed exchange is ordered by: it stores nothing, so nothing is released.
_FAILURES = {"release": "monotonic", "acq_rel": "acquire"}

_OPERATIONS = {
    "int": {"add": "add", "max": "max", "min": "min", "or": "or"},
    "uint": {"add": "add", "max": "umax", "min": "umin", "or": "or"},
    "float": {"add": "fadd", "max": "fmax", "min": "fmin"},
}
_FLOATS = {32: "float", 64: "double"}


@dataclass(frozen=True)
class AtomicFunction:
    """One function: its name in the module, the type that it gives and its text."""

    name: str
    dtype: str
    text: str

    def called(self, *args: Expr) -> Expr:
        """The call; it must stand in what `defined` gives."""
        return tirx.call_extern(self.dtype, self.name, *args)

    def defined(self, body: tirx.Stmt) -> tirx.Stmt:
        """``body`` with the function at hand."""
        return with_llvm(self.text, body)


def update(kind: str, dtype: str, order: str) -> AtomicFunction:
    """f(address, value) combines an element of ``dtype`` with a value and gives what it was before."""
    family = dtype.rstrip("0123456789")
    bits = int(dtype.removeprefix(family))
    value = _FLOATS[bits] if family == "float" else f"i{bits}"
    name, order = f"tilec_atomic_{kind}_{dtype}_{order}", _ORDERS[order]
    text = f"""define {value} @{name}(ptr %place, {value} %value) {{
  %old = atomicrmw {_OPERATIONS[family][kind]} ptr %place, {value} %value {order}
  ret {value} %old
}}"""
    return AtomicFunction(name, dtype, text)


def load(bits: int, order: str) -> AtomicFunction:
    """f(address) gives the bits there, read in one piece."""
    name, kind = f"tilec_atomic_load_{bits}_{order}", f"i{bits}"
    text = f"""define {kind} @{name}(ptr %place) {{
  %found = load atomic {kind}, ptr %place {_ORDERS[order]}, align {bits // 8}
  ret {kind} %found
}}"""
    return AtomicFunction(name, f"uint{bits}", text)


def store(bits: int, order: str) -> AtomicFunction:
    """f(address, bits) leaves the bits there, written in one piece; gives 0."""
    name, kind = f"tilec_atomic_store_{bits}_{order}", f"i{bits}"
    text = f"""define i32 @{name}(ptr %place, {kind} %new) {{
  store atomic {kind} %new, ptr %place {_ORDERS[order]}, align {bits // 8}
  ret i32 0
}}"""
    return AtomicFunction(name, "int32", text)


def exchange(bits: int, order: str) -> AtomicFunction:
    """f(address, expected, new) gives what was at the address: ``expected`` where ``new`` has replaced it."""
    name, order, kind = f"tilec_atomic_exchange_{bits}_{order}", _ORDERS[order], f"i{bits}"
    text = f"""define {kind} @{name}(ptr %place, {kind} %old, {kind} %new) {{
  %pair = cmpxchg ptr %place, {kind} %old, {kind} %new {order} {_FAILURES.get(order, order)}
  %found = extractvalue {{ {kind}, i1 }} %pair, 0
  ret {kind} %found
}}"""
    return AtomicFunction(name, f"uint{bits}", text)
