"""Device helpers in Metal's language: the C++ of their texts, with an address space for each pointer.

A function is written once for each choice of spaces that it is called with; in Metal they are overloads of
one name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tilec.backends.cuda.codegen.any_words import any_words
from tilec.backends.cuda.codegen.computed import computed
from tilec.backends.cuda.device import floats, moves
from tilec.backends.cuda.device.exchange import ANEW, SHARED_SYNC, warp_sync
from tilec.backends.metal.codegen.header import FUNCTIONS
from tilec.backends.metal.codegen.words import ATOMICS, OF_AUTHOR, refused

if TYPE_CHECKING:
    from tilec.backends.cuda.device.helper import Called

#: The head of a helper: what stands before its name, its name, its parameters.
_HEAD = re.compile(r"^\s*([\w ]*?)\s*\b(\w+)\(([^)]*)\)\s*\{", re.DOTALL)
#: A cast to a pointer, or the declaration of one; not `a * b`.
_POINTER = re.compile(
    r"(?<=\()(?P<cast>(?:const |volatile )?(?:unsigned |signed )?\w+)\*(?=\))"
    r"|(?P<declared>(?:const )?(?:unsigned )?\w+)\* (?=\w+ = )"
)
_CALLED = re.compile(r"\b([A-Za-z_]\w*)\s*\(")
_WIDE = re.compile(r"\bunsigned long(?: long)?\b|\blong long\b")
_ATOMIC = re.compile(r"\batomic[A-Z]\w*\(")
_NARROW = re.compile(r"_atomic_\w+16\b")
#: Coordinates and exchanges that a function has to be told its place for.
_COORDINATES = {"gridDim": "here.blocks", "blockIdx": "here.block", "threadIdx": "here.item"}
_EXCHANGES = re.compile(r"\b(__shfl\w*)\(")
#: What may stand in front of a parenthesis beside functions of the header.
_LANGUAGE = frozenset(
    """
    if for while switch return sizeof float int uint char unsigned short ushort long ulong half uint2 uint4
    min max fma fmin fmax abs simdgroup_multiply_accumulate thread_elements threadgroup_barrier
    """.split()
)
#: The type of so many bytes.
_WORDS = {4: "uint", 8: "uint2", 16: "uint4"}


def _copy(size: int) -> str:
    word = _WORDS[size]
    return (
        f"inline void tilec_cp_async_{size}(void* dst, const void* src, int bytes) {{\n"
        f"  *({word}*)dst = bytes ? *(const {word}*)src : {word}(0);\n}}\n"
    )


#: Helpers whose assembly is no single instruction, by their CUDA text.
_OWN = {
    **{moves.cp_async(size).text: _copy(size) for size in _WORDS},
    **moves.PLAIN_TAKES,
    floats.FROM_BFLOAT16.text: "inline float tilec_from_bfloat16(ushort bits) {\n"
    "  return tilec_cvt_f32_bf16(bits);\n}\n",
    SHARED_SYNC.text: "inline void tilec_sync_shared() {\n"
    "  threadgroup_barrier(mem_flags::mem_threadgroup);\n}\n",
    ANEW.text: "inline int tilec_anew(int value) { return value; }\n",
    warp_sync(None).text: "inline void tilec_sync_active() { __syncwarp(); }\n",
}


class Helpers:
    """The helpers of one source."""

    def __init__(self) -> None:
        self._written: dict[tuple[str, str, tuple[str, ...]], str] = {}

    @property
    def text(self) -> str:
        """All that were called."""
        return "".join(self._written.values())

    def pointers(self, function: Called) -> list[bool]:
        """Which parameters of a helper are pointers. UnsupportedError for a function of an author."""
        if function.helper is None:
            raise refused(function.name, OF_AUTHOR)
        return [param == "pointer" for param in function.helper.params]

    def call(self, name: str, text: str, args: list[str], spaces: list[str]) -> str:
        """A call with pointers into ``spaces``."""
        key = (name, text, tuple(spaces))
        if key not in self._written:
            self._written[key] = metal_text(name, text, spaces)
        asks = "tilec_place here" in self._written[key]
        return f"{name}({', '.join(['here', *args] if asks else args)})"


def metal_text(name: str, text: str, spaces: list[str]) -> str:
    """A helper whose pointers are into these spaces, in the order of its parameters. UnsupportedError for
    what is left of NVIDIA's assembly, or calls what Metal has not."""
    text = computed(_OWN.get(text, text), FUNCTIONS).strip()
    if "asm" in text:
        why = ATOMICS if _NARROW.search(name) else "its code is of NVIDIA's instructions"
        raise refused(name, why)
    head = _HEAD.match(text)
    if head is None:
        raise refused(name, "it is no function")
    params = [each.strip() for each in head[3].split(",")] if head[3].strip() else []
    places = dict(zip([_word(each) for each in params if "*" in each], spaces, strict=True))
    made = [f"{places[_word(each)]} {each}" if "*" in each else each for each in params]
    body = _spaced(text[head.end() :], places)
    _require(name, body)
    if _ATOMIC.search(body) and _WIDE.search(text):
        raise refused(name, ATOMICS)
    result = re.sub(r"__\w+__|\bstatic\b|\binline\b", "", head[1]).strip()
    if _EXCHANGES.search(body) or any(word in body for word in _COORDINATES):
        made.insert(0, "tilec_place here")
        body = _EXCHANGES.sub(r"\1(here, ", body)
        for word, own in _COORDINATES.items():
            body = re.sub(rf"\b{word}\b", own, body)
    return _WIDE.sub(_width, f"inline {result} {head[2]}({', '.join(made)}) {{{body}\n\n")


def _width(found: re.Match[str]) -> str:
    return "ulong" if found[0].startswith("unsigned") else "long"


def _word(param: str) -> str:
    """The name of a parameter."""
    return re.split(r"[ *]", param)[-1]


def _spaced(body: str, places: dict[str, str]) -> str:
    """Casts and declarations of pointers with the space of the first pointer behind them; words that are read
    where others were written are of types for that."""
    names = re.compile(rf"\b({'|'.join(places)})\b") if places else None

    def spaced(found: re.Match[str]) -> str:
        behind = names.search(body, found.end()) if names else None
        pointer = any_words(found[0])
        return pointer if behind is None else f"{places[behind[1]]} {pointer}"

    return _POINTER.sub(spaced, body)


def _require(name: str, body: str) -> None:
    """Raises UnsupportedError where a body calls what nothing defines."""
    unknown = set(_CALLED.findall(body)) - FUNCTIONS - _LANGUAGE
    if unknown:
        raise refused(name, f"Metal has no {min(unknown)}")
