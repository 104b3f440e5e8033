"""Arrays that end where memory does: a read of what lies behind one ends the process."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

_PAGE = mmap.PAGESIZE


def at_the_end(array: np.ndarray) -> np.ndarray:
    """A copy whose last byte is the last of a page, the next page being nobody's to read."""
    held = -(-array.nbytes // _PAGE) * _PAGE
    memory = np.frombuffer(mmap.mmap(-1, held + _PAGE), np.uint8)
    protect = ctypes.CDLL(None).mprotect
    if protect(ctypes.c_void_p(memory.ctypes.data + held), ctypes.c_size_t(_PAGE), 0) != 0:
        raise OSError("mprotect refuses a page")
    copy = memory[held - array.nbytes : held].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
