"""Words of memory that holds elements of other types.

Helpers read and write such words by pointers to unsigned integers. Clang may take these for other memory than
the elements (C++, "strict aliasing"), and move loads of words in front of the stores of their elements, where
their types do not say otherwise."""

from __future__ import annotations

import re

#: What stands above source that has `any_words`.
DECLARATIONS = """
typedef unsigned __attribute__((may_alias)) tilec_any_uint;
typedef unsigned short __attribute__((may_alias)) tilec_any_ushort;
"""
#: A pointer to words of 4 or 2 bytes; bytes may be anything's, and vectors are in clang.
_POINTER = re.compile(r"\b(?:unsigned(?: int)?|uint|(?P<short>unsigned short|ushort))\*")


def any_words(pointer: str) -> str:
    """A cast or a declaration of a pointer, with words that may be parts of anything."""
    return _POINTER.sub(lambda found: f"tilec_any_{'ushort' if found['short'] else 'uint'}*", pointer)
