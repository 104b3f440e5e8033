"""Names that a library may not have: in some consumer they mean something else already."""

from __future__ import annotations

import keyword
import re
import sys

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Files, symbols and crates are made of names; file systems take 255 bytes with what is added to them.
LONGEST_PACKAGE, LONGEST_KERNEL, LONGEST_DIM = 64, 128, 64

#: C23 (ISO/IEC 9899:2024, 6.4.1) and C++20 (ISO/IEC 14882:2020, [lex.key]) together, alternative tokens too.
C_WORDS = frozenset(
    """alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t
    char8_t class co_await co_return co_yield compl concept const const_cast consteval constexpr
    constinit continue decltype default delete do double dynamic_cast else enum explicit export
    extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq
    nullptr operator or or_eq private protected public register reinterpret_cast requires restrict
    return short signed sizeof static static_assert static_cast struct switch template this
    thread_local throw true try typedef typeid typename typeof typeof_unqual union unsigned using
    virtual void volatile wchar_t while xor xor_eq
    _Alignas _Alignof _Atomic _BitInt _Bool _Complex _Decimal128 _Decimal32 _Decimal64 _Generic _Imaginary
    _Noreturn _Static_assert _Thread_local""".split()
)
_CPP_NAMESPACES = frozenset(("std", "posix"))
#: Macros of compilers and of the headers that tilec.h includes.
_MACROS = frozenset("NULL EOF errno assert linux unix i386 stdin stdout stderr INFINITY NAN NDEBUG".split())
#: What `-l<name>` or the dynamic loader finds on a system: lib<name>.so and lib<name>.so.1.
_LIBRARIES = frozenset(
    """c m dl rt util pthread resolv crypt nsl anl gcc gcc_s stdc++ gomp omp atomic quadmath z cuda cudart
    cublas cudnn nvrtc nvidia_ml OpenCL vulkan tvm tvm_ffi tvm_runtime torch torch_cpu torch_cuda
    c10""".split()
)
_PYTHON_PACKAGES = frozenset("numpy torch jax cupy ml_dtypes tvm tvm_ffi tilelang".split())


def is_identifier(text: str) -> bool:
    """Whether a text is made as a name of C is; keywords are too."""
    return bool(_IDENTIFIER.fullmatch(text))


def is_c_identifier(text: str) -> bool:
    """Whether a text may be a C and C++ name."""
    return is_identifier(text) and text not in C_WORDS


def package_problem(name: str) -> str:
    """Why a library cannot have this name; empty if it can."""
    if not is_c_identifier(name):
        return f'"{shown(name)}" is no C identifier, and the name is the prefix of every C symbol'
    if len(name) > LONGEST_PACKAGE:
        return f"the name has {len(name)} characters, and files and symbols take {LONGEST_PACKAGE}"
    if name == "tilec" or name.startswith(("tilec_", "TILEC_")):
        return f'"{name}" would collide with the names of tilec.h'
    if name in _CPP_NAMESPACES:
        return f'"{name}" is a namespace of C++, to which nobody may add, as the C++ header would'
    if name in _MACROS:
        return f'"{name}" is a macro of C compilers or headers'
    if keyword.iskeyword(name):
        return f'"{name}" is a keyword of Python, and the library is a Python package too'
    if name in _LIBRARIES:
        return f"lib{name}.so is a library of the system, which programs would find in place of this one"
    if name in sys.stdlib_module_names or name in _PYTHON_PACKAGES:
        return f'"{name}" is a Python module already, and the library is a Python package too'
    return ""


def shown(name: str) -> str:
    """A name in a message: the start of a long one."""
    return name if len(name) <= LONGEST_KERNEL else f"{name[:40]}..."
