"""C source that a kernel imports, as LLVM IR for CPU code: the C compiler of packages makes it.

The words of CUDA for functions of a device mean nothing there, so that plain C serves both.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tilec.codegen.toolchain import find_toolchain
from tilec.errors import CompileError, UnsupportedError
from tilec.systems import LINUX
from tilec.targets import Host

if TYPE_CHECKING:
    from tilec.targets import Target

_DEVICE_WORDS = ("__device__", "__forceinline__", "__host__", "__noinline__")
#: Static and inline functions are kept, which this compiler sees no calls of; the kernel's optimises them.
_KEPT = ("-femit-all-decls", "-Xclang", "-disable-llvm-passes")
_FLAGS = (*_KEPT, "-Wno-everything", "-Dhalf=_Float16", *(f"-D{word}=" for word in _DEVICE_WORDS))
_DEFINITION = re.compile(r"^define (?:hidden |dso_local |internal |available_externally )*", re.MULTILINE)
_LINKAGE = re.compile(r'\bextern\s*"C"')
_PRELUDE = "#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n"


def llvm_text(source: str, target: Target) -> str:
    """The LLVM IR of C source, its functions internal ones. CompileError with the compiler's words;
    UnsupportedError for systems whose calling conventions are others."""
    if target.triple != LINUX.llvm.format(arch=target.arch):
        raise UnsupportedError(
            f"T.import_source is compiled for Linux alone, not for {target.triple}",
            remedy="write the function as a T.macro, or leave the kernel out for that host",
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "imported.c"
        path.write_text(_PRELUDE + _LINKAGE.sub("", source))
        try:
            text = find_toolchain(Host(target.arch, "2.17")).llvm_text(path, _FLAGS)
        except CompileError as error:
            raise CompileError(
                "the source of T.import_source does not compile for CPUs",
                why=error.why,
                remedy="write plain C, or give the kernel CUDA targets alone",
            ) from error
    return _DEFINITION.sub("define internal ", text)
