"""C for the functions that CPU code calls in LLVM's language, and for LLVM's own intrinsics."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tilec.backends.cpu.c_source.helpers import Helpers, math_expression
from tilec.backends.cpu.c_source.types import CType, c_type
from tilec.backends.cpu.emit.numbers.float8_tables import upper_halves
from tilec.errors import UnsupportedError

_SYMBOLS = {"add": "+", "sub": "-", "mul": "*"}
#: Orders of the language and of LLVM as compilers spell them.
_ORDERS = {"relaxed": "RELAXED", "monotonic": "RELAXED", "consume": "ACQUIRE", "acquire": "ACQUIRE"}
_ORDERS |= {"release": "RELEASE", "acq_rel": "ACQ_REL", "seq_cst": "SEQ_CST"}
_FAILURES = {"RELEASE": "RELAXED", "ACQ_REL": "ACQUIRE"}
#: Functions of the runtime (runtime_c/src/launch/lines.c) -> their parameters.
_RUNTIME = {
    "tilec_line_text": "const char *part",
    "tilec_line_int64": "int64_t part",
    "tilec_line_uint64": "uint64_t part",
    "tilec_line_float64": "double part",
    "tilec_line_end": "void",
    "tilec_check_failed": "const char *text",
}
#: What keeps trips of joined products apart; what loops that stream begin and end with. C on its own streams
#: nothing: the runtime knows the caches.
_WHOLE = {
    "tilec_once": "int32_t tilec_once(void) { return 0; }",
    "tilec_apart": 'void tilec_apart(void) { __asm__ volatile("" ::: "memory"); }',
    "tilec_last_cache_bytes": "int64_t tilec_last_cache_bytes(void) { return INT64_MAX; }",
    "tilec_fence": "int32_t tilec_fence(void) { __builtin_ia32_sfence(); return 0; }",
    "tilec_misplaced": (
        "int32_t tilec_misplaced(void *p, int32_t bytes) { return (uintptr_t)p & (bytes - 1); }"
    ),
}
#: Byte products that are summed by fours: whether the left operand is unsigned.
_BYTE_SUMS = {
    "llvm.x86.avx512.vpdpbusd.256": ("uint8_t", "int8_t"),
    "llvm.x86.avx512.vpdpbusd.512": ("uint8_t", "int8_t"),
    "llvm.aarch64.neon.sdot.v4i32.v16i8": ("int8_t", "int8_t"),
    "llvm.aarch64.neon.udot.v4i32.v16i8": ("uint8_t", "uint8_t"),
}
#: The smaller or the larger operand; NaN where either is.
_NAN_KEEPING = {"minimum": "<", "maximum": ">"}
#: The larger and the smaller lane, the second operand's where either is NaN.
_EXTREME = re.compile(r"llvm\.x86\.\w+\.(max|min)\.p[sd](?:\.\d+)?")
#: The numbers of a vector that lanes name.
_LOOK_UP = "llvm.x86.avx512.permvar.sf.512"
_PAIR_SUMS = ("llvm.x86.sse2.pmadd.wd", "llvm.x86.avx2.pmadd.wd", "llvm.x86.avx512.pmaddw.d.512")


def extern_call(name: str, result: CType | None, helpers: Helpers) -> str:
    """The C function for one of the functions that lowering writes in LLVM's language. Raises
    UnsupportedError for one that has none."""
    for pattern, made in _BY_NAMES:
        found = re.fullmatch(pattern, name)
        if found is not None:
            return made(name, found, helpers)
    for pattern, made_of in _BY_RESULTS:
        found = re.fullmatch(pattern, name)
        if found is not None and result is not None:
            return made_of(name, found, result, helpers)
    if name in _WHOLE:
        return helpers.function(name, lambda: _WHOLE[name])
    if name in _RUNTIME:
        return helpers.declared(name, f"int32_t {name}({_RUNTIME[name]})")
    raise UnsupportedError(f"there is no C for a call of {name}")


def _atomic(name: str, kind: str, element: CType, order: str, helpers: Helpers) -> str:
    order = f"__ATOMIC_{_ORDERS[order]}"
    head = f"{element.name} {name}({element.name} *p, {element.name} v)"
    if kind in ("add", "or") and not element.is_float:
        return helpers.function(name, lambda: f"{head} {{ return __atomic_fetch_{kind}(p, v, {order}); }}")
    stays = f"old {'<' if kind == 'min' else '>'} v{' || v != v' if element.is_float else ''}"
    chosen = f"{stays} ? old : v"
    combined = {"add": "old + v", "max": chosen, "min": chosen}.get(kind)
    if combined is None:
        raise UnsupportedError(f"there is no C for a call of {name}")
    return helpers.function(
        name,
        lambda: (
            f"{head} {{\n  {element.name} old, next;\n  __atomic_load(p, &old, __ATOMIC_RELAXED);\n"
            f"  do next = {combined};\n"
            f"  while (!__atomic_compare_exchange(p, &old, &next, 0, {order}, __ATOMIC_RELAXED));\n"
            "  return old;\n}"
        ),
    )


def _wrapping(name: str, symbol: str, kind: CType, helpers: Helpers) -> str:
    """Arithmetic on unsigned numbers, which wraps around in C."""
    helpers.type(kind)
    head = f"{kind.name} {name}({kind.name} a, {kind.name} b)"
    if "_int" not in name:
        return helpers.function(name, lambda: f"{head} {{ return a {symbol} b; }}")
    by = c_type(name.rpartition("_")[2].replace("int", "uint"))
    helpers.type(by)
    made = f"({kind.name})(({by.name})a {symbol} ({by.name})b)"
    return helpers.function(name, lambda: f"{head} {{ return {made}; }}")


def _exchange(name: str, kind: CType, order: str, helpers: Helpers) -> str:
    failure = _FAILURES.get(order, order)
    return helpers.function(
        name,
        lambda: (
            f"{kind.name} {name}(void *p, {kind.name} expected, {kind.name} next) {{\n"
            f"  __atomic_compare_exchange_n(({kind.name} *)p, &expected, next, 0, __ATOMIC_{order}, "
            f"__ATOMIC_{failure});\n  return expected;\n}}"
        ),
    )


def _place(name: str, what: str, kind: CType, order: str, helpers: Helpers) -> str:
    """A load or a store in one piece; a store gives 0."""
    if what == "load":
        text = (
            f"{kind.name} {name}(void *p) {{ return __atomic_load_n(({kind.name} *)p, __ATOMIC_{order}); }}"
        )
    else:
        call = f"__atomic_store_n(({kind.name} *)p, v, __ATOMIC_{order})"
        text = f"int32_t {name}(void *p, {kind.name} v) {{ {call}; return 0; }}"
    return helpers.function(name, lambda: text)


def _first_lanes(name: str, result: CType, helpers: Helpers) -> str:
    """Elements at a place, as many as count, and zeros."""
    helpers.type(result)
    return helpers.function(
        name,
        lambda: (
            f"{result.name} {name}(const {result.element} *p, int32_t count) {{\n  {result.name} v = {{0}};\n"
            f"  for (int i = 0; i < {result.lanes} && i < count; i++) v[i] = p[i];\n  return v;\n}}"
        ),
    )


def _gather(name: str, result: CType, index: str, helpers: Helpers) -> str:
    """Elements so far from a place each, where there are any, and zeros."""
    at, there = c_type(index), c_type(f"int32x{result.lanes}")
    for kind in (result, at, there):
        helpers.type(kind)
    return helpers.function(
        name,
        lambda: (
            f"{result.name} {name}(const {result.element} *p, {at.name} at, {there.name} there) {{\n"
            f"  {result.name} v = {{0}};\n"
            f"  for (int i = 0; i < {result.lanes}; i++) if (there[i]) v[i] = p[at[i]];\n  return v;\n}}"
        ),
    )


def _neighbours(name: str, result: CType, index: CType, helpers: Helpers) -> str:
    """Elements side by side from so far behind a place, where there are any, and zeros."""
    there = c_type(f"int32x{result.lanes}")
    for kind in (result, there):
        helpers.type(kind)
    return helpers.function(
        name,
        lambda: (
            f"{result.name} {name}(const {result.element} *p, {index.name} at, {there.name} there) {{\n"
            f"  {result.name} v = {{0}};\n"
            f"  for (int i = 0; i < {result.lanes}; i++) if (there[i]) v[i] = p[at + i];\n  return v;\n}}"
        ),
    )


def _store_lanes(name: str, kind: CType, at: CType, place: str, helpers: Helpers) -> str:
    """The lanes that take part, side by side or each to its place."""
    there = c_type(f"int32x{kind.lanes}")
    for vector in (kind, at, there):
        helpers.type(vector)
    return helpers.function(
        name,
        lambda: (
            f"int32_t {name}({kind.element} *p, {at.name} at, {there.name} there, {kind.name} v) {{\n"
            f"  for (int i = 0; i < {kind.lanes}; i++) if (there[i]) p[{place}] = v[i];\n  return 0;\n}}"
        ),
    )


def _store_first_lanes(name: str, kind: CType, helpers: Helpers) -> str:
    """As many lanes as count."""
    helpers.type(kind)
    return helpers.function(
        name,
        lambda: (
            f"int32_t {name}({kind.element} *p, int32_t count, {kind.name} v) {{\n"
            f"  for (int i = 0; i < {kind.lanes} && i < count; i++) p[i] = v[i];\n  return 0;\n}}"
        ),
    )


def _stream(name: str, kind: CType, helpers: Helpers) -> str:
    """A store at an aligned place, past the caches where there is such an instruction."""
    helpers.type(kind)
    head = f"int32_t {name}(void *p, {kind.name} v)"
    return helpers.function(name, lambda: f"{head} {{ *({kind.name} *)p = v; return 0; }}")


def _bfloat16_pairs(name: str, result: CType, helpers: Helpers) -> str:
    """Products of bfloat16 pairs, in float32."""
    words = c_type(f"int32x{result.lanes}")
    helpers.type(words)
    half = helpers.function(
        "float_of_bfloat16",
        lambda: (
            "float float_of_bfloat16(uint32_t bits) "
            "{ float f; bits <<= 16; __builtin_memcpy(&f, &bits, sizeof f); return f; }"
        ),
    )
    pair = " + ".join(
        f"{half}((uint32_t)a[i] {how}) * {half}((uint32_t)b[i] {how})" for how in ("& 0xffff", ">> 16")
    )
    return helpers.function(
        name,
        lambda: (
            f"{result.name} {name}({result.name} total, {words.name} a, {words.name} b) {{\n"
            f"  for (int i = 0; i < {result.lanes}; i++) total[i] += {pair};\n  return total;\n}}"
        ),
    )


def _nearest_bfloat16(name: str, result: CType, helpers: Helpers) -> str:
    """float32 lanes rounded to bfloat16, ties to even; NaN stays a quiet NaN."""
    floats, words = (c_type(f"{element}x{result.lanes}") for element in ("float32", "uint32"))
    for kind in (result, floats, words):
        helpers.type(kind)
    near = "a[i] != a[i] ? bits[i] >> 16 | 0x40 : (bits[i] + 0x7fff + (bits[i] >> 16 & 1)) >> 16"
    return helpers.function(
        name,
        lambda: (
            f"{result.name} {name}({floats.name} a) {{\n  {words.name} bits = ({words.name})a;\n"
            f"  {result.name} r;\n  for (int i = 0; i < {result.lanes}; i++) r[i] = (uint16_t)({near});\n"
            "  return r;\n}"
        ),
    )


def intrinsic_call(expr: Any, result: CType, helpers: Helpers) -> tuple[str, list[Any]]:
    """The C function for an intrinsic of LLVM, and its arguments. Raises UnsupportedError for one that has
    none."""
    name, arguments = _intrinsic_name(expr.args[0]), list(expr.args[1:])
    if name.startswith(("llvm.fmuladd", "llvm.fma")):
        builtin = "__builtin_fma" if result.dtype == "float64" else "__builtin_fmaf"
        return helpers.lanewise("fma", result, 3, f"{builtin}(a, b, c)"), arguments[-3:]
    plain = name.removeprefix("llvm.").partition(".")[0]
    if plain in _NAN_KEEPING:
        return helpers.lanewise(plain, result, 2, f"a != a || a {_NAN_KEEPING[plain]} b ? a : b"), arguments[
            -2:
        ]
    extreme = _EXTREME.fullmatch(name)
    if extreme is not None:
        word = extreme[1]
        return helpers.lanewise(word, result, 2, f"a {_NAN_KEEPING[f'{word}imum']} b ? a : b"), arguments[:2]
    expression = math_expression(plain, result) if name.startswith("llvm.") else None
    if expression is not None:
        return helpers.lanewise(plain, result, len(arguments), expression), arguments
    if name == _LOOK_UP:
        return _looked_up(result, helpers), arguments
    if name in _BYTE_SUMS:
        return _byte_sums(name, result, helpers), arguments[-3:]
    if name in _PAIR_SUMS:
        return _pair_sums(name, result, helpers), arguments[-2:]
    raise UnsupportedError(f"there is no C for a call of {name}")


def _intrinsic_name(argument: Any) -> str:
    """LLVM's name; TVM may hold its number."""
    if hasattr(argument, "value") and isinstance(argument.value, str):
        return argument.value
    import tvm_ffi

    return str(tvm_ffi.get_global_func("target.llvm_get_intrinsic_name")(int(argument.value)))


def _looked_up(result: CType, helpers: Helpers) -> str:
    """Elements of a vector, of which each lane names one by the lower bits of an index."""
    index, own = c_type(f"int32x{result.lanes}"), f"looked_up_{result.tag}"
    for kind in (result, index):
        helpers.type(kind)
    return helpers.function(
        own,
        lambda: (
            f"{result.name} {own}({result.name} table, {index.name} at) {{\n  {result.name} v;\n"
            f"  for (int i = 0; i < {result.lanes}; i++) v[i] = table[at[i] & {result.lanes - 1}];\n"
            "  return v;\n}"
        ),
    )


def _byte_sums(name: str, result: CType, helpers: Helpers) -> str:
    left, right = _BYTE_SUMS[name]
    bytes_ = c_type(f"{right.removesuffix('_t')}x{4 * result.lanes}")
    helpers.type(bytes_)
    own = f"sums_of_{left}_{right}_{result.tag}"
    return helpers.function(
        own,
        lambda: (
            f"{result.name} {own}({result.name} total, {bytes_.name} a, {bytes_.name} b) {{\n"
            f"  for (int i = 0; i < {bytes_.lanes}; i++) total[i / 4] += ({left})a[i] * ({right})b[i];\n"
            "  return total;\n}"
        ),
    )


def _pair_sums(name: str, result: CType, helpers: Helpers) -> str:
    words = c_type(f"int16x{2 * result.lanes}")
    helpers.type(words)
    own = f"sums_of_pairs_{result.tag}"
    return helpers.function(
        own,
        lambda: (
            f"{result.name} {own}({words.name} a, {words.name} b) {{\n  {result.name} total;\n"
            f"  for (int i = 0; i < {result.lanes}; i++)\n"
            "    total[i] = a[2 * i] * b[2 * i] + a[2 * i + 1] * b[2 * i + 1];\n  return total;\n}"
        ),
    )


def _unknown(name: str, result: CType, helpers: Helpers) -> str:
    """A number that compilers know nothing of."""
    return helpers.function(name, lambda: f"{result.name} {name}({result.name} given) {{ return given; }}")


#: Functions by the patterns of their names, in which their types stand.
_BY_NAMES: tuple[tuple[str, Callable[[str, re.Match[str], Helpers], str]], ...] = (
    (
        r"tilec_atomic_(add|max|min|or)_([a-z]+[0-9]+)_(\w+)",
        lambda name, found, helpers: _atomic(name, found[1], c_type(found[2]), found[3], helpers),
    ),
    (
        r"tilec_atomic_exchange_(\d+)_(\w+)",
        lambda name, found, helpers: _exchange(name, c_type(f"uint{found[1]}"), _ORDERS[found[2]], helpers),
    ),
    (
        r"tilec_atomic_(load|store)_(\d+)_(\w+)",
        lambda name, found, helpers: _place(
            name, found[1], c_type(f"uint{found[2]}"), _ORDERS[found[3]], helpers
        ),
    ),
    (
        r"tilec_store_first_([a-z]+\d+x\d+)",
        lambda name, found, helpers: _store_first_lanes(name, c_type(found[1]), helpers),
    ),
    (
        r"tilec_stream_([a-z]+\d+x\d+)",
        lambda name, found, helpers: _stream(name, c_type(found[1]), helpers),
    ),
    (
        r"tilec_store_some_(int\d+)_([a-z]+\d+x\d+)",
        lambda name, found, helpers: _store_lanes(
            name, c_type(found[2]), c_type(found[1]), "at + i", helpers
        ),
    ),
    (
        r"tilec_scatter_(int\d+)_([a-z]+\d+x(\d+))",
        lambda name, found, helpers: _store_lanes(
            name, c_type(found[2]), c_type(f"{found[1]}x{found[3]}"), "at[i]", helpers
        ),
    ),
    (
        r"tilec_store_last_(int\d+)_([a-z]+\d+x\d+)",
        lambda name, found, helpers: _store_lanes(name, c_type(found[2]), c_type(found[1]), "at", helpers),
    ),
)


def _floats_looked_up(name: str, dtype: str, result: CType, helpers: Helpers) -> str:
    """Floats of 8 bits, each by the upper half of the float that its magnitude is, and its sign."""
    raw, bits = c_type(f"uint8x{result.lanes}"), c_type(f"uint32x{result.lanes}")
    for kind in (result, raw, bits):
        helpers.type(kind)
    halves = ", ".join(str(low | high << 8) for low, high in upper_halves(dtype))
    return helpers.function(
        name,
        lambda: (
            f"{result.name} {name}({raw.name} v) {{\n  static const uint16_t halves[] = {{{halves}}};\n"
            f"  {bits.name} bits;\n  for (int i = 0; i < {result.lanes}; i++)\n"
            "    bits[i] = (uint32_t)halves[v[i] & 127] << 16 | (uint32_t)(v[i] & 128) << 24;\n"
            f"  return ({result.name})bits;\n}}"
        ),
    )


#: Those that take the type of their result as well.
_BY_RESULTS: tuple[tuple[str, Callable[[str, re.Match[str], CType, Helpers], str]], ...] = (
    (
        r"tilec_wrapping_(add|sub|mul)_u?int\d+(?:x\d+)?",
        lambda name, found, result, helpers: _wrapping(name, _SYMBOLS[found[1]], result, helpers),
    ),
    (r"tilec_unknown_int\d+", lambda name, _, result, helpers: _unknown(name, result, helpers)),
    (r"tilec_first_[a-z]+\d+x\d+", lambda name, _, result, helpers: _first_lanes(name, result, helpers)),
    (
        r"tilec_gather_(int\d+)_[a-z]+\d+x\d+",
        lambda name, found, result, helpers: _gather(name, result, f"{found[1]}x{result.lanes}", helpers),
    ),
    (
        r"tilec_some_(int\d+)_[a-z]+\d+x\d+",
        lambda name, found, result, helpers: _neighbours(name, result, c_type(found[1]), helpers),
    ),
    (
        r"tilec_vdpbf16ps|tilec_bfdot",
        lambda name, _, result, helpers: _bfloat16_pairs(name, result, helpers),
    ),
    (
        r"tilec_(float8_\w+)_looked_up",
        lambda name, found, result, helpers: _floats_looked_up(name, found[1], result, helpers),
    ),
    (r"tilec_bfloat16_\d+", lambda name, _, result, helpers: _nearest_bfloat16(name, result, helpers)),
)
