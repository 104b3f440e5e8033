"""Loads and stores of some lanes of a vector, for which TIR has no nodes: functions in LLVM's language,
inlined where they are called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.exprs import dtype_of
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.math.vectors import lanes_of, literal

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.targets import Target

_ELEMENTS = {
    "float32": "float",
    "float64": "double",
    "int32": "i32",
    "uint32": "i32",
    "int64": "i64",
    "uint64": "i64",
}

_LOAD = """
declare {vector} @llvm.masked.load.{suffix}.p0(ptr, i32 immarg, <{lanes} x i1>, {vector})
define linkonce_odr hidden {vector} @{name}(ptr %place, i32 %count) alwaysinline nounwind {{
{mask}
  %loaded = call {vector} @llvm.masked.load.{suffix}.p0(ptr %place, i32 {bytes}, <{lanes} x i1> %mask,
                                                        {vector} zeroinitializer)
  ret {vector} %loaded
}}
"""

_STORE = """
declare void @llvm.masked.store.{suffix}.p0({vector}, ptr, i32 immarg, <{lanes} x i1>)
define linkonce_odr hidden i32 @{name}(ptr %place, i32 %count, {vector} %value) alwaysinline nounwind {{
{mask}
  call void @llvm.masked.store.{suffix}.p0({vector} %value, ptr %place, i32 {bytes}, <{lanes} x i1> %mask)
  ret i32 0
}}
"""

_GATHER = """
declare {vector} @llvm.masked.gather.{suffix}.v{lanes}p0(<{lanes} x ptr>, i32 immarg, <{lanes} x i1>,
                                                         {vector})
define linkonce_odr hidden {vector} @{name}(ptr %base, <{lanes} x {index}> %at,
                                            <{lanes} x i32> %there) alwaysinline nounwind {{
  %mask = icmp ne <{lanes} x i32> %there, zeroinitializer
  %places = getelementptr {element}, ptr %base, <{lanes} x {index}> %at
  %found = call {vector} @llvm.masked.gather.{suffix}.v{lanes}p0(
    <{lanes} x ptr> %places, i32 {bytes}, <{lanes} x i1> %mask, {vector} zeroinitializer)
  ret {vector} %found
}}
"""

#: LLVM takes a masked gather of AVX2 for one load behind a branch for each lane: those that have no element
#: read a zero instead.
_LOOKUP = """
@tilec_nothing = linkonce_odr hidden constant i64 0
define linkonce_odr hidden {vector} @{name}(ptr %base, <{lanes} x {index}> %at,
                                            <{lanes} x i32> %there) alwaysinline nounwind {{
  %mask = icmp ne <{lanes} x i32> %there, zeroinitializer
  %places = getelementptr {element}, ptr %base, <{lanes} x {index}> %at
  %nothing = insertelement <{lanes} x ptr> poison, ptr @tilec_nothing, i64 0
  %nothings = shufflevector <{lanes} x ptr> %nothing, <{lanes} x ptr> poison, <{lanes} x i32> zeroinitializer
  %read = select <{lanes} x i1> %mask, <{lanes} x ptr> %places, <{lanes} x ptr> %nothings
{loads}
  ret {vector} %found{lanes}
}}
"""

_LOAD_LANE = """  %place{lane} = extractelement <{lanes} x ptr> %read, i64 {lane}
  %loaded{lane} = load {element}, ptr %place{lane}, align {bytes}
  %found{next} = insertelement {vector} {found}, {element} %loaded{lane}, i64 {lane}"""

_MASK = """  %first = insertelement <{lanes} x i32> poison, i32 %count, i64 0
  %counts = shufflevector <{lanes} x i32> %first, <{lanes} x i32> poison, <{lanes} x i32> zeroinitializer
  %mask = icmp sgt <{lanes} x i32> %counts, <{numbers}>"""


def has_first_lanes(target: Target, dtype: str) -> bool:
    """Whether one instruction moves so many elements of ``dtype`` and no more: with AVX2 and AVX-512 those of
    words."""
    return target.vector_bits >= 256 and dtype in _ELEMENTS


def first_lanes(place: Expr, count: Expr, dtype: str, lanes: int, functions: dict[str, str]) -> Expr:
    """``lanes`` elements of ``dtype`` at an address, those from ``count`` on zero and not read; ``functions``
    gets the text of what is called."""
    name = f"tilec_first_{dtype}x{lanes}"
    add_function(functions, _LOAD, name, dtype, lanes)
    return tirx.call_extern(f"{dtype}x{lanes}", name, place, count)


def are_first(count: Expr, lanes: int) -> Expr:
    """Whether each lane is one of the first ``count``."""
    zero, one = tirx.const(0, dtype_of(count)), tirx.const(1, dtype_of(count))
    return tirx.Ramp(zero, one, lanes) < tirx.Broadcast(count, lanes)


def lanes_that_exist(
    base: Expr, at: Expr, exists: Expr, dtype: str, target: Target, functions: dict[str, str]
) -> Expr:
    """The elements of ``dtype`` that lie ``at`` so many behind an address, in the lanes where one ``exists``;
    zeros in the others, which read nothing of it."""
    lanes, index = lanes_of(at), dtype_of(at).partition("x")[0]
    name = f"tilec_gather_{index}_{dtype}x{lanes}"
    form = _GATHER if target.vector_bits >= 512 else _LOOKUP
    add_function(functions, form, name, dtype, lanes, index=_ELEMENTS[index])
    return tirx.call_extern(f"{dtype}x{lanes}", name, base, at, as_words(exists))


def as_words(exists: Expr) -> Expr:
    """Conditions of lanes as integers, which calls take."""
    lanes = lanes_of(exists)
    return tirx.Select(exists, literal(1, "int32", lanes), literal(0, "int32", lanes))


def store_first_lanes(
    place: Expr, count: Expr, value: Expr, dtype: str, functions: dict[str, str]
) -> tirx.Stmt:
    """Writes ``count`` lanes of a vector of ``dtype`` to an address."""
    lanes = lanes_of(value)
    name = f"tilec_store_first_{dtype}x{lanes}"
    add_function(functions, _STORE, name, dtype, lanes)
    return tirx.Evaluate(tirx.call_extern("int32", name, place, count, value))


def add_function(
    functions: dict[str, str], form: str, name: str, dtype: str, lanes: int, **words: str
) -> None:
    """Puts a function into ``functions``, and what it declares under a key of its own: several share an
    intrinsic, which one text may declare once."""
    kind, size = "f" if dtype.startswith("float") else "i", element_bytes(dtype)
    element = {"float16": "half"}.get(dtype) or _ELEMENTS.get(dtype, f"i{8 * size}")
    mask = _MASK.format(lanes=lanes, numbers=", ".join(f"i32 {number}" for number in range(lanes)))
    vector, suffix = f"<{lanes} x {element}>", f"v{lanes}{kind}{8 * size}"
    words |= {"vector": vector, "element": element, "suffix": suffix, "name": name, "mask": mask}
    words["loads"] = _loads(lanes, size, element, vector)
    text = form.format(lanes=lanes, bytes=size, **words)
    declared, definition, body = text.partition("define")
    functions[declared] = declared
    functions[name] = definition + body


def _loads(lanes: int, size: int, element: str, vector: str) -> str:
    """One load for each lane of a vector, from where `_LOOKUP` says."""
    found = ["poison", *(f"%found{lane}" for lane in range(1, lanes))]
    words = {"lanes": lanes, "bytes": size, "element": element, "vector": vector}
    return "\n".join(
        _LOAD_LANE.format(lane=lane, next=lane + 1, found=found[lane], **words) for lane in range(lanes)
    )
