"""Loads and stores of neighbours in memory by those lanes of a vector for which a condition holds.

TIR has no node for them, so they are functions in LLVM's language, inlined where they are called, as those of
`first_lanes` for the first lanes of a vector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.codegen.open_tests import NARROW
from tilec.backends.cpu.emit.loops.rolled import unknown
from tilec.backends.cpu.emit.vectors.first_lanes import add_function, as_words, has_first_lanes
from tilec.ir.exprs import dtype_of
from tilec.lowering.math.vectors import lanes_of, spread

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.targets import Target

_LOAD = """
declare {vector} @llvm.masked.load.{suffix}.p0(ptr, i32 immarg, <{lanes} x i1>, {vector})
define linkonce_odr hidden {vector} @{name}(ptr %base, {index} %at,
                                            <{lanes} x i32> %there) alwaysinline nounwind {{
  %mask = icmp ne <{lanes} x i32> %there, zeroinitializer
  %place = getelementptr {element}, ptr %base, {index} %at
{whole}
  %found = call {vector} @llvm.masked.load.{suffix}.p0(ptr %place, i32 {bytes}, <{lanes} x i1> %mask,
                                                       {vector} zeroinitializer)
  ret {vector} %found
}}
"""

#: Where no instruction has masks for elements of that size: mostly all lanes have one.
_WHOLE = """  %bits = bitcast <{lanes} x i1> %mask to i{lanes}
  %all = icmp eq i{lanes} %bits, -1
  br i1 %all, label %whole, label %parts
whole:
  %loaded = load {vector}, ptr %place, align {bytes}
  ret {vector} %loaded
parts:"""

_STORE = """
declare void @llvm.masked.store.{suffix}.p0({vector}, ptr, i32 immarg, <{lanes} x i1>)
define linkonce_odr hidden i32 @{name}(ptr %base, {index} %at, <{lanes} x i32> %there,
                                       {vector} %value) alwaysinline nounwind {{
  %mask = icmp ne <{lanes} x i32> %there, zeroinitializer
  %place = getelementptr {element}, ptr %base, {index} %at
{whole}
  call void @llvm.masked.store.{suffix}.p0({vector} %value, ptr %place, i32 {bytes}, <{lanes} x i1> %mask)
  ret i32 0
}}
"""

_STORE_WHOLE = """  %bits = bitcast <{lanes} x i1> %mask to i{lanes}
  %all = icmp eq i{lanes} %bits, -1
  br i1 %all, label %whole, label %parts
whole:
  store {vector} %value, ptr %place, align {bytes}
  ret i32 0
parts:"""

_SCATTER = """
declare void @llvm.masked.scatter.{suffix}.v{lanes}p0({vector}, <{lanes} x ptr>, i32 immarg, <{lanes} x i1>)
define linkonce_odr hidden i32 @{name}(ptr %base, <{lanes} x {index}> %at, <{lanes} x i32> %there,
                                       {vector} %value) alwaysinline nounwind {{
  %mask = icmp ne <{lanes} x i32> %there, zeroinitializer
  %places = getelementptr {element}, ptr %base, <{lanes} x {index}> %at
  call void @llvm.masked.scatter.{suffix}.v{lanes}p0(
    {vector} %value, <{lanes} x ptr> %places, i32 {bytes}, <{lanes} x i1> %mask)
  ret i32 0
}}
"""

_STORE_LAST = """
declare i{lanes} @llvm.ctlz.i{lanes}(i{lanes}, i1)
define linkonce_odr hidden i32 @{name}(ptr %base, {index} %at, <{lanes} x i32> %there,
                                       {vector} %value) alwaysinline nounwind {{
  %mask = icmp ne <{lanes} x i32> %there, zeroinitializer
  %bits = bitcast <{lanes} x i1> %mask to i{lanes}
  %some = icmp ne i{lanes} %bits, 0
  br i1 %some, label %store, label %done
store:
  %above = call i{lanes} @llvm.ctlz.i{lanes}(i{lanes} %bits, i1 true)
  %lane = xor i{lanes} %above, {last}
  %written = extractelement {vector} %value, i{lanes} %lane
  %place = getelementptr {element}, ptr %base, {index} %at
  store {element} %written, ptr %place, align {bytes}
  br label %done
done:
  ret i32 0
}}
"""


def neighbours_that_exist(
    base: Expr, at: Expr, exists: Expr, dtype: str, target: Target, functions: dict[str, str]
) -> Expr:
    """Elements of ``dtype`` side by side, the first ``at`` so many behind an address, in the lanes where one
    ``exists``; zeros in the others, which read nothing. ``functions`` gets the text of what is called."""
    lanes = lanes_of(exists)
    name = f"tilec_some_{dtype_of(at)}_{dtype}x{lanes}"
    whole = "" if has_masks(target, dtype) else _WHOLE
    add_function(functions, _LOAD.replace("{whole}", whole), name, dtype, lanes, index=_index(at))
    return tirx.call_extern(f"{dtype}x{lanes}", name, base, at, as_words(exists))


def store_lanes(
    base: Expr, at: Expr, mask: Expr, value: Expr, dtype: str, target: Target, functions: dict[str, str]
) -> tirx.Stmt:
    """Writes the lanes of ``mask`` to elements side by side, the first ``at`` so many behind one. Which
    lanes these are LLVM is not to know where it would write beside them (`codegen/open_tests.py`)."""
    lanes, words = lanes_of(value), as_words(mask)
    name = f"tilec_store_some_{dtype_of(at)}_{dtype}x{lanes}"
    text = _STORE.replace("{whole}", "" if has_masks(target, dtype) else _STORE_WHOLE)
    add_function(functions, text, name, dtype, lanes, index=_index(at))
    if target.vector_bits >= 512 and dtype in NARROW:
        words = tirx.bitwise_and(words, spread(unknown(-1, "int32", functions), lanes))
    return tirx.Evaluate(tirx.call_extern("int32", name, base, at, words, value))


def scatter_lanes(
    base: Expr, at: Expr, mask: Expr, value: Expr, dtype: str, functions: dict[str, str]
) -> tirx.Stmt:
    """Writes the lanes of ``mask`` to elements ``at`` so many behind an address, one lane after the other."""
    lanes, index = lanes_of(value), dtype_of(at).partition("x")[0]
    name = f"tilec_scatter_{index}_{dtype}x{lanes}"
    add_function(functions, _SCATTER, name, dtype, lanes, index=f"i{index.removeprefix('int')}")
    return tirx.Evaluate(tirx.call_extern("int32", name, base, at, as_words(mask), value))


def store_last_lane(
    base: Expr, at: Expr, mask: Expr, value: Expr, dtype: str, functions: dict[str, str]
) -> tirx.Stmt:
    """Writes the last lane of ``mask``, if there is one, to the element ``at`` so many behind an address:
    what is there when one lane after the other has written it."""
    lanes, index = lanes_of(value), dtype_of(at)
    name = f"tilec_store_last_{index}_{dtype}x{lanes}"
    words = {"index": _index(at), "last": str(lanes - 1)}
    add_function(functions, _STORE_LAST, name, dtype, lanes, **words)
    return tirx.Evaluate(tirx.call_extern("int32", name, base, at, as_words(mask), value))


def has_masks(target: Target, dtype: str) -> bool:
    """Whether loads and stores of vectors of ``dtype`` leave lanes out: AVX-512's of any type."""
    return target.vector_bits >= 512 or has_first_lanes(target, dtype)


def _index(at: Expr) -> str:
    return f"i{dtype_of(at).removeprefix('int')}"
