"""Foreign code: functions of imported C, called with values and with pointers."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec
import tilec.language as T
from tilec.errors import CompileError, UnsupportedError
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel

#: C that is CUDA C++ as well.
DECODE = """
__device__ __forceinline__ void decode_i4(const unsigned char* in, float* out, int n) {
  for (int i = 0; i < n; ++i) {
    int value = (in[i / 2] >> (4 * (i % 2))) & 15;
    out[i] = (float)(value - 8);
  }
}
"""
TWICE = "__device__ float twice(float x) { return 2.0f * x; }\n"


@T.prim_func
def decoded(A: T.Tensor((32, 4), "uint8"), C: T.Tensor((32, 8), "float32")):
    with T.Kernel(1, threads=32):
        T.import_source(DECODE)
        T.import_source(None)
        tx = T.get_thread_binding()
        packed, values = T.alloc_local((4,), "uint8"), T.alloc_local((8,), "float32")
        for k in T.serial(4):
            packed[k] = A[tx, k]
        T.call_extern("handle", "decode_i4", T.address_of(packed[0]), T.access_ptr(values[2], "w"), 6)
        values[0] = 1.0
        values[1] = -1.0
        for k in T.serial(8):
            C[tx, k] = values[k]


def test_a_function_of_imported_source_fills_memory():
    a = np.random.default_rng(0).integers(0, 256, (32, 4)).astype(np.uint8)
    values = np.stack([a & 15, a >> 4], axis=-1).reshape(32, 8).astype(np.float32)[:, :6] - 8
    ends = np.tile(np.array([1, -1], np.float32), (32, 1))
    agree(decoded, a, expected=np.concatenate([ends, values], axis=1), interpreted=False)


def test_the_text_of_a_kernel_carries_the_source():
    text = format_kernel(elaborated(decoded, (), None, {}, {}))
    assert format_kernel(parse_kernel(text)) == text
    assert "decode_i4" in text


def test_functions_of_imported_source_give_values():
    @T.prim_func
    def main(A: T.Tensor((32,), "float32"), C: T.Tensor((2, 32), "float32")):
        with T.Kernel(1, threads=32):
            T.import_source(TWICE)
            tx = T.get_thread_binding()
            C[0, tx] = T.call_pure_extern("float32", "twice", A[tx]) + 1.0
            once = T.call_extern("float32", "twice", A[tx] + 1.0)
            C[1, tx] = once

    a = np.linspace(-2, 2, 32, dtype=np.float32)
    agree(main, a, expected=np.stack([2 * a + 1, 2 * (a + 1)]), interpreted=False)


def test_functions_of_cuda_and_of_the_language_are_known_by_name():
    @T.prim_func
    def main(A: T.Tensor((32,), "float32"), C: T.Tensor((2, 32), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(32):
                C[0, i] = T.call_pure_extern("float32", "__expf", A[i])
                C[1, i] = T.call_intrin("float32", "tirx.exp2", A[i])

    a = np.linspace(-2, 2, 32, dtype=np.float32)
    agree(main, a, expected=np.stack([np.exp(a), np.exp2(a)]))


#: Functions that reach beyond the element whose address they get.
WINDOWS = """
__device__ float three(const float* x) { return x[0] + x[1] + x[2]; }
__device__ void both(float* to, float x) { to[0] = x; to[1] = -x; }
__device__ int chosen(const int* from, int at) { return from[at]; }
"""


def test_functions_read_what_other_threads_wrote_behind_an_address():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), n: T.int32, C: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            T.import_source(WINDOWS)
            s, acc = T.alloc_shared((66,), "float32"), T.alloc_fragment((64,), "float32")
            T.clear(s)
            T.clear(acc)
            for k in T.serial(n):
                for j in T.Parallel(64):
                    s[j] = A[j] + k
                for j in T.Parallel(64):
                    acc[j] += T.call_pure_extern("float32", "three", T.access_ptr(s[j], "r", 3))
            T.copy(acc, C)

    a = np.arange(64, dtype=np.float32) % 7
    padded = np.pad(np.stack([a, a + 1]), ((0, 0), (0, 2)))
    agree(main, a, 2, expected=sum(padded[:, i : i + 64] for i in range(3)).sum(0), interpreted=False)


def test_functions_write_what_other_threads_read_behind_an_address():
    @T.prim_func
    def main(A: T.Tensor((40,), "float32"), C: T.Tensor((2, 80), "float32")):
        with T.Kernel(1, threads=64):
            T.import_source(WINDOWS)
            s = T.alloc_shared((81,), "float32")
            T.clear(s)
            for i in T.Parallel(40):
                T.call_extern("void", "both", T.access_ptr(s[2 * i], "w", 2), A[i])
            for j in T.Parallel(80):
                C[0, j] = s[79 - j]
                C[1, j] = T.call_pure_extern("float32", "three", T.address_of(s[j // 3 * 3]))

    a = np.arange(40, dtype=np.float32) % 9
    s = np.stack([a, -a], 1).ravel()
    threes = np.repeat(np.append(s, 0).reshape(27, 3).sum(1), 3)
    agree(main, a, expected=np.stack([s[::-1], threes[:80]]), interpreted=False)


def test_whole_numbers_of_functions_choose_elements_and_count_loops():
    @T.prim_func
    def main(P: T.Tensor((12,), "int32"), X: T.Tensor((5, 16), "float32"), C: T.Tensor((12, 16), "float32")):
        with T.Kernel(3, threads=32) as b:
            T.import_source(WINDOWS)
            trips = T.call_pure_extern("int32", "chosen", T.address_of(P[0]), b)
            f = T.alloc_fragment((4, 16), "float32")
            for i, j in T.Parallel(4, 16):
                row = T.call_extern("int32", "chosen", T.address_of(P[b * 4]), i)
                f[i, j] = X[row, j]
            for _ in T.serial(trips):
                for i, j in T.Parallel(4, 16):
                    f[i, j] += 1
            T.copy(f, C[b * 4, 0])

    p = np.array([3, 0, 2, -1, 4, 5, 1, 1, 0, 2, 9, 4], np.int32)
    x = np.arange(80, dtype=np.float32).reshape(5, 16)
    found = np.where(((p >= 0) & (p < 5))[:, None], x[p % 5], 0) + np.repeat([3, 0, 2], 4)[:, None]
    agree(main, p, x, expected=[p, found], interpreted=False)


def _calling(body, source=None):
    @T.prim_func
    def main(A: T.Tensor((32,), "float32"), C: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32):
            T.import_source(source)
            f = T.alloc_fragment((32,), "float32")
            T.copy(A, f)
            body(A, f)
            T.copy(f, C)

    return main


def test_elements_of_fragments_have_no_address():
    kernel = _calling(lambda A, f: T.call_extern("handle", "g", T.address_of(f[0])))
    with pytest.raises(UnsupportedError, match="address of an element of f"):
        elaborated(kernel, (), None, {}, {})


def test_a_buffer_is_no_argument():
    with pytest.raises(TypeError, match="a buffer is no argument"):
        elaborated(_calling(lambda A, f: T.call_extern("handle", "g", A)), (), None, {}, {})


def test_cpu_code_needs_the_source_and_plain_c():
    a = np.zeros(32, np.float32)
    kernel = _calling(lambda A, f: T.call_extern("handle", "g", T.address_of(A[0])))
    with pytest.raises(UnsupportedError, match="foreign function g has no CPU code"):
        agree(kernel, a, expected=[a, a], interpreted=False, targets=("cpu",))
    kernel = _calling(
        lambda A, f: T.call_extern("handle", "g", T.address_of(A[0])), "template <class T> void g(T*);"
    )
    with pytest.raises(CompileError, match="does not compile for CPUs"):
        agree(kernel, a, expected=[a, a], interpreted=False, targets=("cpu",))


def test_functions_of_imported_source_are_there():
    a = np.zeros(32, np.float32)
    kernel = _calling(lambda A, f: T.call_extern("handle", "g", T.address_of(A[0])), "void h(float* x) {}")
    with pytest.raises(CompileError, match="g, which nothing provides"):
        agree(kernel, a, expected=[a, a], interpreted=False, targets=("cpu",))


def test_unknown_intrinsics_are_refused():
    with pytest.raises(UnsupportedError, match=r"T\.call_intrin of nothing_like_it"):
        elaborated(_calling(lambda A, f: T.call_intrin("float32", "nothing_like_it", A[0])), (), None, {}, {})


@pytest.mark.parametrize("words", ["", 'extern "C"', "static", "static __inline__", "inline"])
def test_kernels_in_process_keep_imported_source(words):
    """However its functions are declared, with what these read for themselves."""
    source = f"static const float two[] = {{2.0f}};\n{words} {TWICE.replace('2.0f', 'two[0]')}"

    @tilec.jit(target="cpu")
    def doubled(A):
        A: T.Tensor[[32], T.float32]
        C = T.empty((32,), T.float32)
        T.import_source(source)
        with T.Kernel(1, threads=32):
            for i in T.Parallel(32):
                C[i] = T.call_pure_extern("float32", "twice", A[i])
        return C

    a = np.linspace(-2, 2, 32, dtype=np.float32)
    assert np.array_equal(doubled(a), 2 * a)
