"""Compiles by hipRTC: HIP on stdin, a code object on stdout, the compiler's words on stderr.

    python hiprtc_process.py LIBRARY OPTION...

Without options: the version. Exits with 1 where that fails. Imports nothing of tilec.
"""

from __future__ import annotations

import ctypes
import os
import sys


def main() -> int:
    """The status of the process."""
    try:
        library = ctypes.CDLL(sys.argv[1])
        asked = library.hiprtcVersion
    except (OSError, AttributeError) as error:
        return _fail(str(error))
    if len(sys.argv) > 2:
        return _compile(library, sys.argv[2:], sys.stdin.buffer.read())
    major, minor = ctypes.c_int(), ctypes.c_int()
    if asked(ctypes.byref(major), ctypes.byref(minor)) != 0:
        return _fail("hiprtcVersion failed")
    return _answer(f"{major.value}.{minor.value}".encode())


def _compile(library: ctypes.CDLL, options: list[str], text: bytes) -> int:
    program = ctypes.c_void_p()
    if library.hiprtcCreateProgram(ctypes.byref(program), text, b"kernel.hip", 0, None, None) != 0:
        return _fail("hiprtcCreateProgram failed")
    array = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    if library.hiprtcCompileProgram(program, len(options), array) != 0:
        return _fail(_read(library, program, "ProgramLog").decode(errors="replace").rstrip("\0"))
    return _answer(_read(library, program, "Code"))


def _read(library: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    getattr(library, f"hiprtcGet{what}Size")(program, ctypes.byref(size))
    made = ctypes.create_string_buffer(size.value)
    getattr(library, f"hiprtcGet{what}")(program, made)
    return made.raw


def _answer(data: bytes) -> int:
    sys.stdout.buffer.write(data)
    return 0


def _fail(why: str) -> int:
    sys.stderr.write(why)
    return 1


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # without the library's own end, which has been seen to crash
