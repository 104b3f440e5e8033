"""Kernels with one mistake each: what errors say about them is in golden/test_language_errors/errors.txt."""

# ruff: noqa
import copy
import enum
import math

import numpy as np

import tilec.language as T

n = T.dynamic("n")
Ints = T.Tensor((8,), "int32")
Floats = T.Tensor((8,), "float32")
Mat = T.Tensor((8, 8), "float16")


class Side(enum.Enum):
    LEFT = 0


@T.prim_func
def in_list(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        B[0] = 1 if bx in [1, 2] else 0


@T.prim_func
def eq_plain(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        B[0] = [1 for _ in [0] if bx == 2][0]


@T.prim_func
def break_runtime(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        for i in [1, 2]:
            if bx > 2:
                continue
            B[i] = 1


@T.prim_func
def iter_buf(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        for i in A:
            B[0] = i


@T.prim_func
def iter_expr(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        for i in bx:
            B[0] = i


@T.prim_func
def compr_serial(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        B[0] = sum([i for i in T.serial(4)])


@T.prim_func
def while_nomem(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        i = bx + 1
        while i < 3:
            i = i + 1


@T.prim_func
def while_nomem2(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        while bx < 3:
            B[0] = 1


@T.prim_func
def assert_false(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        assert 1 > 2, "one is small"


@T.prim_func
def early(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        if bx > 1:
            return
        B[bx] = 1


@T.prim_func
def retmid(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        return


@T.prim_func
def b_max(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        B[0] = max(bx, 1)


@T.prim_func
def b_round(A: Floats, B: Ints):
    with T.Kernel(8) as bx:
        B[0] = round(A[0])


@T.prim_func
def b_int(A: Floats, B: Ints):
    with T.Kernel(8) as bx:
        B[0] = int(A[0])


@T.prim_func
def b_float(A: Floats, B: Ints):
    with T.Kernel(8) as bx:
        B[0] = float(A[0])


@T.prim_func
def b_bool(A: Floats, B: Ints):
    with T.Kernel(8) as bx:
        B[0] = bool(A[0])


@T.prim_func
def b_len(A: Floats, B: Ints):
    with T.Kernel(8) as bx:
        B[0] = len(A)


@T.prim_func
def b_any(A: Floats, B: Ints):
    with T.Kernel(8) as bx:
        B[0] = any([bx > 1, bx < 2])


@T.prim_func
def b_math(A: Floats, B: Ints):
    with T.Kernel(8) as bx:
        B[0] = math.exp(A[0])


@T.prim_func
def b_pow(A: Floats, B: Ints):
    with T.Kernel(8) as bx:
        B[0] = bx**2


@T.prim_func
def b_rpow(A: Floats, B: Ints):
    with T.Kernel(8) as bx:
        B[0] = 2**bx


@T.prim_func
def b_matmul(A: Mat, B: Mat):
    with T.Kernel(8) as bx:
        s = T.alloc_shared((8, 8), "float16")
        x = s @ s


@T.prim_func
def b_bufadd(A: Mat, B: Mat):
    with T.Kernel(8) as bx:
        s = T.alloc_shared((8, 8), "float16")
        x = s + s


@T.prim_func
def b_bufcmp(A: Mat, B: Mat):
    with T.Kernel(8) as bx:
        s = T.alloc_shared((8, 8), "float16")
        if s > 0:
            B[0, 0] = 1


@T.prim_func
def attr(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        A.x = 3


@T.prim_func
def attraug(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        A.x += 3


@T.prim_func
def star(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        a, *b = 1, 2, 3


@T.prim_func
def starloop(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        for a, *b in [(1, 2, 3)]:
            B[0] = a


@T.prim_func
def ndef(A: Ints, B: Ints):
    with T.Kernel(8) as bx:

        def f(x):
            A[0] = x

        B[0] = f(1)


@T.prim_func
def slicestep(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        T.copy(A[0:8:2], B[0:4])


@T.prim_func
def rank(A: Mat, B: Mat):
    with T.Kernel(8) as bx:
        B[0] = 1


@T.prim_func
def rank2(A: Mat, B: Mat):
    with T.Kernel(8) as bx:
        B[0, 0] = A[:, :, 0]


@T.prim_func
def fidx(A: Floats, B: Ints):
    with T.Kernel(8) as bx:
        B[A[0]] = 1


@T.prim_func
def fidx2(A: Floats, B: Ints):
    with T.Kernel(8) as bx:
        B[1.5] = 1


@T.prim_func
def oob(A: Floats, B: Ints):
    with T.Kernel(8) as bx:
        B[8] = 1


@T.prim_func
def oob2(A: Floats, B: Ints):
    with T.Kernel(8) as bx:
        B[-9] = 1


@T.prim_func
def wholeaug(A: Floats, B: Ints):
    with T.Kernel(8) as bx:
        B += 1


@T.prim_func
def scope(A: Floats, B: Ints):
    with T.Kernel(8) as bx:
        if bx > 1:
            x = bx + 1
        else:
            x = bx + 2
        B[bx] = x


@T.prim_func
def undefd(A: Floats, B: Ints):
    with T.Kernel(8) as bx:
        B[bx] = undefined_name


@T.prim_func
def unbound(A: Floats, B: Ints):
    with T.Kernel(8) as bx:
        B[bx] = zz
        zz = 1


@T.prim_func
def divint(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        B[bx] = A[bx] / 2


@T.prim_func
def fdivf(A: Floats, B: Ints):
    with T.Kernel(8) as bx:
        B[bx] = A[bx] // 2.0


@T.prim_func
def modf(A: Floats, B: Ints):
    with T.Kernel(8) as bx:
        B[bx] = A[bx] % 2.0


@T.prim_func
def shiftf(A: Floats, B: Ints):
    with T.Kernel(8) as bx:
        B[bx] = A[bx] << 1


@T.prim_func
def andf(A: Floats, B: Ints):
    with T.Kernel(8) as bx:
        B[bx] = A[bx] & 1


@T.prim_func
def invf(A: Floats, B: Ints):
    with T.Kernel(8) as bx:
        B[bx] = ~A[bx]


@T.prim_func
def negb(A: Floats, B: Ints):
    with T.Kernel(8) as bx:
        B[bx] = -(A[bx] > 1)


@T.prim_func
def strarith(A: Floats, B: Ints):
    with T.Kernel(8) as bx:
        B[bx] = bx + "a"


@T.prim_func
def nonearith(A: Floats, B: Ints):
    with T.Kernel(8) as bx:
        B[bx] = bx + None


@T.prim_func
def storestr(A: Floats, B: Ints):
    with T.Kernel(8) as bx:
        B[bx] = "a"


@T.prim_func
def storebuf(A: Floats, B: Ints):
    with T.Kernel(8) as bx:
        B[bx] = A


@T.prim_func
def storeslice(A: Floats, B: Ints):
    with T.Kernel(8) as bx:
        B[bx] = A[0:2]


@T.prim_func
def assignslice(A: Floats, B: Ints):
    with T.Kernel(8) as bx:
        B[0:2] = "12"


@T.prim_func
def gemmdt(A: Mat, B: Mat):
    with T.Kernel(8) as bx:
        a = T.alloc_shared((16, 16), "float16")
        b = T.alloc_shared((16, 16), "float32")
        c = T.alloc_fragment((16, 16), "float32")
        T.gemm(a, b, c)


@T.prim_func
def gemmsh(A: Mat, B: Mat):
    with T.Kernel(8) as bx:
        a = T.alloc_shared((16, 16), "float16")
        b = T.alloc_shared((32, 16), "float16")
        c = T.alloc_fragment((16, 16), "float32")
        T.gemm(a, b, c)


@T.prim_func
def copysh(A: Mat, B: Mat):
    with T.Kernel(8) as bx:
        a = T.alloc_shared((16, 16), "float16")
        b = T.alloc_shared((32, 16), "float16")
        T.copy(a, b)


@T.prim_func
def badkw(A: Mat, B: Mat):
    with T.Kernel(8) as bx:
        a = T.alloc_shared((16, 16), "float16")
        T.copy(a, A, sorce=3)


@T.prim_func
def argcount(A: Mat, B: Mat):
    with T.Kernel(8) as bx:
        T.copy(A)


@T.prim_func
def expbuf(A: Floats, B: Floats):
    with T.Kernel(8) as bx:
        B[bx] = T.exp(A)


@T.prim_func
def expstr(A: Floats, B: Floats):
    with T.Kernel(8) as bx:
        B[bx] = T.exp("x")


@T.prim_func
def maxbuf(A: Floats, B: Floats):
    with T.Kernel(8) as bx:
        B[bx] = T.max(A, 1)


@T.prim_func
def boolarith(A: Ints, B: Floats):
    with T.Kernel(8) as bx:
        c = bx > 1
        d = bx > 2
        B[bx] = c + d


@T.prim_func
def boolmul(A: Ints, B: Floats):
    with T.Kernel(8) as bx:
        B[bx] = (bx > 1) * (bx < 3)


@T.prim_func
def selectmix(A: Ints, B: Floats):
    with T.Kernel(8) as bx:
        B[bx] = T.Select(bx > 1, A[bx], 1.0)


@T.prim_func
def rangef(A: Floats, B: Floats):
    with T.Kernel(8) as bx:
        for i in range(A[0]):
            B[bx] = i


@T.prim_func
def rangef2(A: Floats, B: Floats):
    with T.Kernel(8) as bx:
        for i in range(2.5):
            B[bx] = i


@T.prim_func
def gridf(A: Floats, B: Floats):
    with T.Kernel(8.5) as bx:
        B[bx] = 1


@T.prim_func
def sharedf(A: Floats, B: Floats):
    with T.Kernel(8) as bx:
        s = T.alloc_shared((n,), "float32")


@T.prim_func
def reduced(A: Floats, B: Floats):
    with T.Kernel(8) as bx:
        s = T.alloc_fragment((8, 4), "float32")
        d = T.alloc_fragment((4,), "float32")
        T.reduce_sum(s, d, dim=1)


@T.prim_func
def unknown(A: Floats, B: Floats):
    with T.Kernel(8) as bx:
        T.cpoy(A, B)


@T.prim_func
def keyerr(A: Floats, B: Floats):
    with T.Kernel(8) as bx:
        {}["x"]


@T.prim_func
def parallelbody_shape(A: Floats, B: Ints):
    with T.Kernel(8) as bx:
        for i, j in T.Parallel(8):
            B[i] = 1


@T.prim_func
def parallel_names(A: Floats, B: Ints):
    with T.Kernel(8) as bx:
        for i in T.Parallel(8, 8):
            B[i] = 1


@T.prim_func
def divzero(A: Floats, B: Ints):
    with T.Kernel(8) as bx:
        B[bx] = bx // 0


@T.prim_func
def divfzero(A: Floats, B: Ints):
    with T.Kernel(8) as bx:
        A[bx] = A[bx] / 0.0


@T.prim_func
def nested_class(A: Ints, B: Ints):
    with T.Kernel(8):

        class Inner:
            pass


@T.prim_func
def pyzero(A: Floats, B: Ints):
    with T.Kernel(8) as bx:
        B[bx] = 1 // 0


@T.prim_func
def misused_view(A: Mat, B: Mat):
    with T.Kernel(8) as bx:
        T.view(3)


@T.prim_func
def misused_print(A: Mat, B: Mat):
    with T.Kernel(8) as bx:
        T.print(A, 3)


@T.prim_func
def misused_truncdiv(A: Mat, I: Ints):
    with T.Kernel(8) as bx:
        I[0] = T.truncdiv(2.5, I[bx])


@T.prim_func
def misused_swizzle(A: Mat, B: Mat):
    with T.Kernel(8) as bx:
        T.use_swizzle("ten")


import numpy as np


@T.prim_func
def numpy_function(A: Floats, B: Ints):
    with T.Kernel(1, threads=32):
        A[0] = np.exp(np.float32(2) * A[1])


@T.prim_func
def numpy_array(A: Floats, B: Ints):
    with T.Kernel(1, threads=32):
        A[0] = np.arange(3) + A[1]


@T.prim_func
def truth_of_a_tile(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        s = T.alloc_shared((1,), "int32")
        if s:
            B[bx] = 1


@T.prim_func
def truth_of_a_slice(A: Mat, B: Mat):
    with T.Kernel(8) as bx:
        if A[bx, 0:4] or bx > 2:
            B[0, 0] = 1


@T.prim_func
def compared_with_a_text(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        if A[bx] == "relu":
            B[bx] = 1


@T.prim_func
def print_text_first(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        T.print("here", 3)


@T.prim_func
def attribute_of_arrays(A: Mat, B: Mat):
    with T.Kernel(8) as bx:
        T.copy(A.T, B)


TABLE = np.arange(8)


@T.prim_func
def array_as_a_table(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        B[bx] = TABLE[bx]


@T.prim_func
def tensor_type_as_a_tile(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        s = T.Tensor((8,), "int32")
        s[bx] = A[bx]


@T.prim_func
def name_of_another_language(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        B[bx] = T.sum(A)


@T.prim_func
def names_for_too_many(A: Mat, B: Mat):
    with T.Kernel(8) as bx:
        for i, j, k in T.Parallel(8, 8):
            B[i, j] = A[i, j]


@T.prim_func
def dtype_in_front(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        B[bx] = T.cast("int32", A[bx])


@T.prim_func
def comparisons_without_brackets(A: Floats, B: Floats):
    with T.Kernel(8) as bx:
        B[bx] = T.if_then_else(A[bx] > 1 & A[bx] < 3, 1.0, 0.0)


@T.prim_func
def one_argument_too_many(A: Floats, B: Floats):
    with T.Kernel(8) as bx:
        B[bx] = T.exp(A[bx], 2)


@T.prim_func
def badkw_of_loop(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        for k in T.Pipelined(4, stages=2):
            B[k] = A[k]


@T.prim_func
def policy_text(A: Mat):
    with T.Kernel(8) as bx:
        s, c = T.alloc_shared((16, 16), "float16"), T.alloc_fragment((16, 16), "float32")
        T.gemm(s, s, c, policy="FullRow")


@T.prim_func
def policy_number(A: Mat):
    with T.Kernel(8) as bx:
        s, c = T.alloc_shared((16, 16), "float16"), T.alloc_fragment((16, 16), "float32")
        T.gemm(s, s, c, policy=7)


@T.prim_func
def panels_of_none(A: Mat):
    with T.Kernel(8, 8) as (bx, by):
        T.use_swizzle(0)


@T.prim_func
def where_of_torch(A: Floats):
    with T.Kernel(8) as bx:
        A[bx] = T.where(A[bx] > 0, A[bx], 0.0)


@T.prim_func
def list_at_an_expression(A: Ints):
    with T.Kernel(8) as bx:
        A[bx] = [1, 2, 3, 4][bx % 4]


@T.prim_func
def range_to_an_expression(A: Ints):
    with T.Kernel(8) as bx:
        A[bx] = sum([A[i] for i in range(bx + 1)])


@T.prim_func
def dict_at_an_expression(A: Ints):
    with T.Kernel(8) as bx:
        A[bx] = {0: 1, 1: 2}[bx % 2]


@T.prim_func
def half_as_an_index(A: Ints):
    with T.Kernel(8):
        A[8 / 2] = 1


@T.prim_func
def half_as_an_extent(A: Ints):
    with T.Kernel(8):
        T.alloc_shared((8 / 2,), "int32")


@T.prim_func
def half_as_a_grid(A: Ints):
    with T.Kernel(8 / 2):
        A[0] = 1


@T.prim_func
def half_as_trips(A: Ints):
    with T.Kernel(1):
        for i in range(8 / 2):
            A[i] = 1


@T.prim_func
def buffers_equal(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        if A == B:
            B[bx] = 1


@T.prim_func
def negative_buffer(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        T.copy(-A, B)


@T.prim_func
def numpy_sum(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        T.copy(np.sum(A), B)


@T.prim_func
def numpy_maximum(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        B[bx] = np.maximum(A[bx], 0)


@T.prim_func
def numpy_reduction(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        B[bx] = np.sum(A[bx])


@T.prim_func
def buffer_filled(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        B.fill(0)


@T.prim_func
def index_of_cuda(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        B[bx.x] = 0


@T.prim_func
def element_to(A: Floats, B: Floats):
    with T.Kernel(8) as bx:
        B[bx] = A[bx].to(T.float16)


@T.prim_func
def part_of_index(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        B[bx[0]] = 0


@T.prim_func
def matched(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        match A[bx]:
            case 1 | 2:
                B[bx] = 1


@T.prim_func
def stage_number(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        for k in T.Pipelined(4, stage=2):
            B[k] = A[k]


@T.prim_func
def kernel_thread(A: Ints, B: Ints):
    with T.Kernel(8, thread=64) as bx:
        B[bx] = 1


@T.prim_func
def index_enum(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        B[bx] = A[Side.LEFT]


@T.prim_func
def index_tile(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        B[bx] = A[B]


@T.prim_func
def index_none(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        T.copy(A[None, :], B)


@T.prim_func
def not_in_range(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        B[bx] = 1 if bx not in range(3) else 0


@T.prim_func
def returns_inside(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        B[bx] = 1
        return B


@T.prim_func
def great_integer(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        B[bx] = A[bx] + 10**30


@T.prim_func
def shape_without_brackets(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        T.alloc_fragment(8, 8, "float32")


@T.prim_func
def extents_as_tuple(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        for i, j in T.Parallel((8, 8)):
            B[i] = A[j]


@T.prim_func
def python_copies(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        T.copy(copy.deepcopy(A), B)


@T.prim_func
def not_called(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        T.clear
        T.copy(A, B)


@T.prim_func
def element_exp(A: Floats, B: Floats):
    with T.Kernel(8) as bx:
        B[bx] = A[bx].exp()


@T.prim_func
def numpy_mean(A: Floats, B: Floats):
    with T.Kernel(8) as bx:
        B[bx] = np.mean(A)


@T.prim_func
def numpy_where(A: Floats, B: Floats):
    with T.Kernel(8) as bx:
        B[bx] = np.where(A[bx] > 0, A[bx], 0)


@T.prim_func
def three_sided_pow(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        B[bx] = pow(A[bx], 2, 5)


@T.prim_func
def kernel_not_called(A: Ints, B: Ints):
    with T.Kernel as bx:
        B[bx] = 1


@T.prim_func
def loop_not_called(A: Ints, B: Ints):
    with T.Kernel(8):
        for i in T.Parallel:
            B[i] = A[i]


@T.macro
def doubled(A, i):
    A[i] = A[i] * 2


@T.prim_func
def macro_not_called(A: Ints, B: Ints):
    with T.Kernel(8) as bx:
        doubled
        T.copy(A, B)


@T.prim_func
def nothing_chosen(A: Floats, B: Floats):
    with T.Kernel(8) as bx:
        B[bx] = A[bx] if A[bx] > 0 else None


@T.prim_func
def tile_of_an_iteration(A: Ints, B: Ints):
    with T.Kernel(8):
        for i in T.Parallel(8):
            f = T.alloc_fragment((4,), "int32")
            f[0] = A[i]
            B[i] = f[0]


@T.prim_func
def product_of_an_iteration(A: Ints, B: Ints):
    with T.Kernel(8):
        a, c = T.alloc_shared((16, 16), "float16"), T.alloc_fragment((16, 16), "float32")
        T.clear(a)
        for i in T.Parallel(8):
            T.gemm(a, a, c)
            B[i] = A[i]


@T.prim_func
def operand_the_other_way_round(A: Ints, B: Ints):
    with T.Kernel(8):
        a, b = T.alloc_shared((64, 32), "float16"), T.alloc_shared((64, 32), "float16")
        c = T.alloc_fragment((64, 64), "float32")
        T.clear(c)
        T.gemm(a, b, c)
