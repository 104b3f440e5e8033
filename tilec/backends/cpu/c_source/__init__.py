"""TIR of a CPU variant as C for GCC and Clang: what people read, and what compiles without TVM or LLVM.

In: the functions that `tilec.backends.cpu.codegen.objects` compiles. Out: one file with the same entries.
Vectors are vector types of the compiler; floor division and what has no operator are small functions at the
top. Mathematical functions are libm's, one lane at a time, where the machine code has polynomials of its own.
"""

from __future__ import annotations

from tilec.backends.cpu.c_source.file import c_source

__all__ = ["c_source"]
