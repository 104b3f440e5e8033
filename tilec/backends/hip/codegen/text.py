"""CUDA C++ of the shared road, as AMD GPUs read it: what is assembly of NVIDIA's in it becomes C++.

An instruction that computes a value becomes a call of the function that `tilec.backends.hip.codegen.header`
has for it. Copies into shared memory are there when they have been issued, so that nothing waits for them."""

from __future__ import annotations

import re

from tilec.backends.cuda.codegen.any_words import any_words
from tilec.backends.cuda.codegen.computed import computed
from tilec.backends.cuda.device import floats, moves
from tilec.backends.cuda.device.exchange import ANEW, SHARED_SYNC
from tilec.backends.hip.codegen.barriers import BARRIERS
from tilec.backends.hip.codegen.functions import needed
from tilec.backends.hip.codegen.header import ATOMICS, END, INSTRUCTIONS, MISSING
from tilec.backends.hip.copies.emit import PIECES, lane_copy
from tilec.errors import UnsupportedError

_SHARED = re.compile(
    r"(?P<extern>extern )?__shared__ (?:__align__\((?P<align>\d+)\) )?"
    r"(?P<type>\w+) (?P<name>\w+)\[(?P<count>\d*)\];"
)
#: The text of a function with assembly in it.
_LEFT = re.compile(r"(\w+)\([^()]*\) \{[^{}]*\basm\b")
#: A pointer of a helper, which is read or written where it stands.
_CAST = re.compile(r"\((?:const |volatile )?[\w ]+\*\)(?=\w)")
#: What stands for instructions of PTX.
_FUNCTIONS = frozenset(re.findall(r"\b(tilec_\w+)\(", INSTRUCTIONS + ATOMICS))
#: The C++ type of so many bytes.
_WORDS = {4: "unsigned", 8: "uint2", 16: "uint4"}


def _function(head: str, body: str) -> str:
    return f"\n__device__ __forceinline__ {head} {{\n  {body}\n}}\n"


def _copy(size: int) -> str:
    word = _WORDS[size]
    head = f"void tilec_cp_async_{size}(void* dst, const void* src, int bytes)"
    return _function(head, f"*({word}*)dst = bytes ? *(const {word}*)src : {word}{{}};")


def _lane_copy(size: int) -> str:
    word = _WORDS[size]
    return _function(
        f"void tilec_lane_copy_{size}(void* dst, const void* src, int bytes)",
        "typedef __attribute__((address_space(3))) char* shared;\n"
        f"  if (!bytes) {{ *({word}*)dst = {word}{{}}; return; }}\n"
        f"  shared own = (shared)dst - tilec_lane_of_wave() * {size};\n"
        "  unsigned place = __builtin_amdgcn_readfirstlane((unsigned)(unsigned long)own);\n"
        "  __builtin_amdgcn_global_load_lds((__attribute__((address_space(1))) void*)src,\n"
        "      (__attribute__((address_space(3))) void*)(unsigned long)place, "
        f"{size}, 0, 0);",
    )


#: Helpers whose assembly is no single instruction, by their CUDA text.
_OWN = {
    **{moves.cp_async(size).text: _copy(size) for size in _WORDS},
    **moves.PLAIN_TAKES,
    **BARRIERS,
    **{lane_copy(size).text: _lane_copy(size) for size in PIECES},
    floats.FROM_BFLOAT16.text: _function(
        "float tilec_from_bfloat16(unsigned short bits)", "return __uint_as_float(unsigned(bits) << 16);"
    ),
    SHARED_SYNC.text: _function(
        "void tilec_sync_shared()",
        '__builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");\n  __builtin_amdgcn_s_barrier();\n  '
        '__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");',
    ),
    ANEW.text: _function("int tilec_anew(int value)", 'asm volatile("" : "+v"(value)); return value;'),
}


def amd_text(text: str) -> str:
    """The C++ for AMD GPUs of CUDA C++. UnsupportedError for what is left of NVIDIA's assembly, and for a
    function of the C library that nothing here computes."""
    head, end, body = text.partition(END)
    text = head + end + needed(body) + body
    foreign = text
    for theirs, own in _OWN.items():
        foreign = foreign.replace(theirs, "")
        text = text.replace(theirs, own)
    _refuse(computed(foreign, _FUNCTIONS))
    text = _CAST.sub(lambda found: any_words(found[0]), computed(text, _FUNCTIONS))
    return _SHARED.sub(_in_lds, text)


def _in_lds(found: re.Match[str]) -> str:
    """Shared memory by a pointer of the plain kind, as which generated code passes it on."""
    name, kind = found["name"], found["type"]
    where = f"tilec_lds, aligned({found['align'] or 16})"
    storage = found["extern"] or "static "
    declared = f"{storage}__attribute__(({where})) {kind} {name}_lds[{found['count']}];"
    return f"{declared}\n  {kind}* {name} = ({kind}*){name}_lds;"


def _refuse(text: str) -> None:
    left = _LEFT.search(text)
    missing = next((name for name in MISSING if re.search(rf"(?<!, ){name}\((?!float\))", _body(text))), None)
    if left is None and missing is None:
        return
    what = left[1] if left is not None else missing
    raise UnsupportedError(
        f"{what} on AMD GPUs",
        why="its code is of NVIDIA's instructions" if left is not None else "nothing computes it there",
        remedy="leave these targets out of the kernel's `targets`, or write it in other operations",
    )


def _body(text: str) -> str:
    """What stands behind the types of the header."""
    return text[text.rfind('extern "C" __global__') :]
