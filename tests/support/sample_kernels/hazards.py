"""Kernels in which an optimisation would be wrong for a reason that is easy to overlook, as tile IR text."""

ACCUMULATOR_IS_OPERAND = """
kernel("accumulator_is_operand")
A = tensor(float32, (32, 32), ("32", "32"), access="in")
B = tensor(float32, (32, 32), ("32", "32"), access="in")
Y = tensor(float32, (32, 32), ("32", "32"), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    t = alloc(float32, (32, 32), "shared.dyn")
    b = alloc(float32, (32, 32), "shared.dyn")
    c = alloc(float32, (32, 32), "local.fragment")
    copy(A[0:+32, 0:+32], t[0:+32, 0:+32])
    copy(B[0:+32, 0:+32], b[0:+32, 0:+32])
    gemm(b[0:+32, 0:+32], b[0:+32, 0:+32], t[0:+32, 0:+32], clear=False)
    gemm(t[0:+32, 0:+32], b[0:+32, 0:+32], c[0:+32, 0:+32], clear=True)
    copy(c[0:+32, 0:+32], Y[0:+32, 0:+32])
"""

SUMS_READ_IN_LOOP = """
kernel("sums_read_in_loop")
A = tensor(float32, (16, 16), ("16", "16"), access="in")
B = tensor(float32, (16, 16), ("16", "16"), access="in")
D = tensor(float32, (16, 32), ("16", "32"), access="in")
Y = tensor(float32, (16, 32), ("16", "32"), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    a = alloc(float32, (16, 16), "shared.dyn")
    b = alloc(float32, (16, 16), "shared.dyn")
    c = alloc(float32, (16, 16), "shared.dyn")
    d = alloc(float32, (16, 32), "shared.dyn")
    e = alloc(float32, (16, 32), "local.fragment")
    copy(A[0:+16, 0:+16], a[0:+16, 0:+16])
    copy(B[0:+16, 0:+16], b[0:+16, 0:+16])
    copy(D[0:+16, 0:+32], d[0:+16, 0:+32])
    fill(c[0:+16, 0:+16], 0.0)
    fill(e[0:+16, 0:+32], 0.0)
    for k in serial(0, 4, 1):
        gemm(a[0:+16, k * 4:+4], b[k * 4:+4, 0:+16], c[0:+16, 0:+16], clear=False)
        gemm(c[0:+16, k * 4:+4], d[k * 4:+4, 0:+32], e[0:+16, 0:+32], clear=False)
    copy(e[0:+16, 0:+32], Y[0:+16, 0:+32])
"""

LEFT_BEFORE_PRODUCT = """
kernel("left_before_product")
A = tensor(float32, (4, 16, 16), ("4", "16", "16"), access="in")
Y = tensor(float32, (16, 16), ("16", "16"), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    a = alloc(float32, (16, 16), "shared.dyn")
    c = alloc(float32, (16, 16), "local.fragment")
    for k in serial(0, 4, 1):
        for i, j in parallel(16, 16):
            a[i, j] = A[k, i, j]
        fill(c[0:+16, 0:+16], 0.0)
        if k == 2:
            break
        gemm(a[0:+16, 0:+16], a[0:+16, 0:+16], c[0:+16, 0:+16], clear=False)
    copy(c[0:+16, 0:+16], Y[0:+16, 0:+16])
"""

EPILOGUE_REMEMBERS = """
kernel("epilogue_remembers")
A = tensor(float32, (4, 16, 16), ("4", "16", "16"), access="in")
Y = tensor(float32, (4, 16, 16), ("4", "16", "16"), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    a = alloc(float32, (16, 16), "shared.dyn")
    c = alloc(float32, (16, 16), "local.fragment")
    first = alloc(float32, (16, 16), "local.fragment")
    for k in serial(0, 4, 1):
        for i, j in parallel(16, 16):
            a[i, j] = A[k, i, j]
        gemm(a[0:+16, 0:+16], a[0:+16, 0:+16], c[0:+16, 0:+16], clear=True)
        for i, j in parallel(16, 16):
            if k == 0:
                first[i, j] = c[i, j]
            Y[k, i, j] = c[i, j] + first[i, j] * 3.0
"""

LOOP_FROM_RUN_TIME = """
kernel("loop_from_run_time")
M = dim(int32)
A = tensor(float32, (M, 40), ("M", "40"), access="in")
B = tensor(float32, (40, 32), ("40", "32"), access="in")
Y = tensor(float32, (32, 32), ("32", "32"), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    a = alloc(float32, (32, 8), "shared.dyn")
    b = alloc(float32, (8, 32), "shared.dyn")
    c = alloc(float32, (32, 32), "local.fragment")
    fill(c[0:+32, 0:+32], 0.0)
    for k in pipelined(M // 8 - 1, 4, num_stages=2):
        copy(A[0:+32, k * 8:+8], a[0:+32, 0:+8])
        copy(B[k * 8:+8, 0:+32], b[0:+8, 0:+32])
        gemm(a[0:+32, 0:+8], b[0:+8, 0:+32], c[0:+32, 0:+32], clear=False)
    copy(c[0:+32, 0:+32], Y[0:+32, 0:+32])
"""

ROW_OUTSIDE = """
kernel("row_outside")
A = tensor(float32, (5, 32), ("5", "32"), access="in")
Y = tensor(float32, (5, 32), ("5", "32"), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    t = alloc(float32, (5, 32), "local.fragment")
    for i, j in parallel(5, 32):
        t[i + 1, j] = A[i, j]
    for i, j in parallel(5, 32):
        Y[i, j] = t[i + 1, j] + t[i + 1, 31 - j]
"""

ELEMENT_OUTSIDE = """
kernel("element_outside")
A = tensor(float32, (32,), ("32",), access="in")
Y = tensor(float32, (32,), ("32",), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    t = alloc(float32, (32,), "local.fragment")
    for i in parallel(32):
        t[i + 3] = A[i]
        Y[i] = t[i + 3] + 1.0
"""

LANES_MEET = """
kernel("lanes_meet")
X = tensor(float32, (8, 32), ("8", "32"), access="in")
ids = tensor(int32, (32,), ("32",), access="in")
Y = tensor(float32, (4, 16), ("4", "16"), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    q = alloc(float32, (4, 16), "local.fragment")
    fill(q[0:+4, 0:+16], 0.0)
    for j in parallel(32):
        q[0, j // 2] = q[0, j // 2] + X[0, j]
    for i, j in parallel(8, 32):
        q[1, j // 2] = q[1, j // 2] + X[i, j]
    for i, j in parallel(8, 32):
        at = (ids[j] % 16 + 16) % 16
        q[2, at] = q[2, at] + X[i, j]
    for i, j in parallel(8, 32):
        at = j % 4
        q[3, at] = max(q[3, at], X[i, j])
    copy(q[0:+4, 0:+16], Y[0:+4, 0:+16])
"""

DIVISION = """
kernel("division")
n = dim(int32)
X = tensor(int32, (n,), ("n",), access="in")
D = tensor(int32, (n,), ("n",), access="in")
Y = tensor(int32, (n,), ("n",), access="out")
Z = tensor(int32, (n,), ("n",), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    x = alloc(int32, (64,), "local.fragment")
    d = alloc(int32, (64,), "local.fragment")
    copy(X[0:+64], x[0:+64])
    copy(D[0:+64], d[0:+64])
    for i in parallel(64):
        x[i] = if_then_else(d[i] > 4, x[i] // d[i], 7)
    copy(x[0:+64], Y[0:+64])
    copy(X[0:+64], x[0:+64])
    for i in parallel(64):
        if d[i] != 0:
            x[i] = x[i] % d[i] + (0 - x[i] - 2147483647) // d[i]
    copy(x[0:+64], Z[0:+64])
"""

COPY_OVERLAPS = """
kernel("copy_overlaps")
X = tensor(float32, (64,), ("64",), access="in")
Y = tensor(float32, (64,), ("64",), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    x = alloc(float32, (64,), "shared.dyn")
    copy(X[0:+64], x[0:+64])
    copy(x[0:+60], x[3:+60])
    copy(x[0:+64], Y[0:+64])
"""

NAME_OUTLIVES_VALUE = """
kernel("name_outlives_value")
M = dim(int32)
A = tensor(float32, (M, 16), ("M", "16"), access="in")
Y = tensor(float32, (M, 16), ("M", "16"), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    t = alloc(float32, (8, 16), "local.fragment")
    v = alloc(int32, (1,), "local.var")
    while v[0] < M:
        at = v[0]
        copy(A[at:+8, 0:+16], t[0:+8, 0:+16])
        v[0] = v[0] + 8
        copy(t[0:+8, 0:+16], Y[at:+8, 0:+16])
"""

VALUE_BEFORE_LOOP = """
kernel("value_before_loop")
X = tensor(float32, (32,), ("32",), access="in")
Y = tensor(float32, (32,), ("32",), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    a = alloc(float32, (32,), "local.fragment")
    s = alloc(float32, (32,), "local.fragment")
    fill(s[0:+32], 2.0)
    if X[0] > 100.0:
        s[1] = 3.0
    for i in parallel(32):
        a[i] = X[i] * 2.0
    v = alloc(float32, (1,), "local.var", init=s[0])
    for i in parallel(32):
        s[i] = a[i]
    for i in parallel(32):
        Y[i] = v[0] + s[31 - i]
"""

SHARED_BEHIND_A_LIMIT = """
kernel("shared_behind_a_limit")
N = dim(int32)
Y = tensor(float32, (16, N), ("16", "N"), access="out")
Z = tensor(float32, (4,), ("4",), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    q = alloc(float32, (4,), "local.fragment")
    a = alloc(float32, (16, 64), "local.fragment")
    fill(q[0:+4], 0.0)
    fill(a[0:+16, 0:+64], 1.5)
    if N > 1000:
        a[3, 3] = 2.0
    for i, j in parallel(16, 64):
        q[j % 3] = q[j % 3] + a[i, j]
    copy(a[0:+16, 0:+64], Y[0:+16, 0:+64])
    copy(q[0:+4], Z[0:+4])
"""

COLUMNS_MISSING = """
kernel("columns_missing")
A = tensor(float32, (8, 32), ("8", "32"), access="in")
B = tensor(float32, (16, 32), ("16", "32"), access="in")
Y = tensor(float32, (8, 20), ("8", "20"), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    a = alloc(float32, (8, 32), "shared.dyn")
    b = alloc(float32, (20, 32), "shared.dyn")
    c = alloc(float32, (8, 20), "local.fragment")
    copy(A[0:+8, 0:+32], a[0:+8, 0:+32])
    copy(B[0:+20, 0:+32], b[0:+20, 0:+32])
    gemm(a[0:+8, 0:+32], b[0:+20, 0:+32], c[0:+8, 0:+20], trans_b=True, clear=True)
    copy(c[0:+8, 0:+20], Y[0:+8, 0:+20])
"""

KERNELS = {
    name.lower(): text for name, text in list(globals().items()) if name.isupper() and isinstance(text, str)
}
