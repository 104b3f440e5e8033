"""Kernels that between them use every statement and access form that CPU code knows, as tile IR text."""

COPY_2D = """
kernel("copy_2d")
M = dim(int32)
N = dim(int32)
X = tensor(float32, (M, N), ("M", "N"), access="in")
Y = tensor(float32, (M, N), ("M", "N"), access="out")
with launch((N + 15) // 16, (M + 7) // 8, threads=(128, 1, 1)) as (bx, by):
    t = alloc(float32, (8, 16), "shared.dyn")
    copy(X[by * 8:+8, bx * 16:+16], t[0:+8, 0:+16])
    copy(t[0:+8, 0:+16], Y[by * 8:+8, bx * 16:+16])
"""

ZERO_FILL = """
kernel("zero_fill")
n = dim(int32)
x = tensor(float32, (n,), ("n",), access="in")
y = tensor(float32, (48,), ("48",), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    t = alloc(float32, (48,), "local.fragment")
    copy(x[0:+48], t[0:+48])
    for i in parallel(48):
        y[i] = t[i] + 1.0
"""

HIDDEN = """
kernel("hidden")
n = dim(int32)
X = tensor(float32, (8, n), ("8", "n"), access="in")
Y = tensor(float32, (8, n), ("8", "n"), access="out")
R = tensor(float32, (8,), ("8",), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    t = alloc(float32, (8, 16), "local.fragment")
    r = alloc(float32, (8,), "local.fragment")
    fill(r[0:+8], -2.0)
    for k in serial(0, (n + 15) // 16, 1):
        copy(X[0:+8, k * 16:+16], t[0:+8, 0:+16])
        for i, j in parallel(8, 16):
            seen = k * 16 + j < n and k * 16 + j <= i + 20
            t[i, j] = if_then_else(seen, t[i, j], -1.0)
        reduce_max(t[0:+8, 0:+16], r[0:+8], axis=1, clear=False)
        copy(t[0:+8, 0:+16], Y[0:+8, k * 16:+16])
    copy(r[0:+8], R[0:+8])
"""

ROWS = """
kernel("rows")
M = dim(int32)
A = tensor(float32, (M, 16), ("M", "16"), access="in")
B = tensor(float32, (16, 16), ("16", "16"), access="in")
Y = tensor(float32, (M, 16), ("M", "16"), access="out")
with launch((M + 31) // 32, threads=(128, 1, 1)) as (b,):
    a = alloc(float32, (32, 16), "shared.dyn")
    w = alloc(float32, (16, 16), "shared.dyn")
    c = alloc(float32, (32, 16), "local.fragment")
    top = alloc(float32, (32,), "local.fragment")
    copy(A[b * 32:+32, 0:+16], a[0:+32, 0:+16])
    copy(B[0:+16, 0:+16], w[0:+16, 0:+16])
    gemm(a[0:+32, 0:+16], w[0:+16, 0:+16], c[0:+32, 0:+16], clear=True)
    reduce_max(c[0:+32, 0:+16], top[0:+32], axis=1, clear=True)
    for i, j in parallel(32, 16):
        c[i, j] = exp(c[i, j] - top[i])
    for i, j in parallel(32, 16):
        Y[b * 32 + i, j] = c[i, j]
"""

ALL_ROWS = ROWS.replace('"rows"', '"all_rows"').replace(
    "    for i, j in parallel(32, 16):\n        Y",
    """    s = alloc(float32, (16,), "local.fragment")
    reduce_sum(c[0:+32, 0:+16], s[0:+16], axis=0, clear=True)
    for i, j in parallel(32, 16):
        c[i, j] = c[i, j] / s[j]
    for i, j in parallel(32, 16):
        Y""",
)

SHIFTED = """
kernel("shifted")
n = dim(int32)
x = tensor(float32, (n,), ("n",), access="in")
y = tensor(float32, (n,), ("n",), access="out")
with launch((n + 15) // 16, threads=(128, 1, 1)) as (bx,):
    for i in parallel(16):
        y[bx * 16 + i] = x[bx * 16 + i - 2] + x[bx * 16 + i + 3]
"""

TRANSPOSE = """
kernel("transpose")
M = dim(int32)
N = dim(int32)
X = tensor(float32, (M, N), ("M", "N"), access="in")
Y = tensor(float32, (N, M), ("N", "M"), access="out")
with launch((N + 15) // 16, (M + 15) // 16, threads=(128, 1, 1)) as (bx, by):
    t = alloc(float32, (16, 16), "shared.dyn")
    copy(X[by * 16:+16, bx * 16:+16], t[0:+16, 0:+16])
    for i, j in parallel(16, 16):
        Y[bx * 16 + i, by * 16 + j] = t[j, i]
"""

STRIDED = """
kernel("strided")
M = dim(int32)
N = dim(int32)
ld = dim(int32)
X = tensor(float32, (M, N), ("M", "N"), access="in", strides=(ld, 1), stride_texts=("ld", "1"))
Y = tensor(float32, (M, N), ("M", "N"), access="out")
with launch(M, threads=(128, 1, 1)) as (bx,):
    for k in serial(0, (N + 7) // 8, 1):
        for j in parallel(8):
            Y[bx, k * 8 + j] = X[bx, k * 8 + j] * 2.0
"""

REDUCE = """
kernel("reduce")
M = dim(int32)
N = dim(int32, max=40)
X = tensor(float32, (M, N), ("M", "N"), access="in")
S = tensor(float32, (5, M), ("5", "M"), access="out")
with launch((M + 3) // 4, threads=(128, 1, 1)) as (bx,):
    t = alloc(float32, (4, 40), "local.fragment")
    r = alloc(float32, (4,), "local.fragment")
    k = alloc(float32, (4, 1), "local.fragment")
    copy(X[bx * 4:+4, 0:+40], t[0:+4, 0:+40])
    reduce_sum(t[0:+4, 0:+40], r[0:+4], axis=1, clear=True)
    copy(r[0:+4], S[0:+1, bx * 4:+4])
    for i, j in parallel(4, 40):
        if j >= N:
            t[i, j] = float32("nan")
    reduce_max(t[0:+4, 0:+40], r[0:+4], axis=1, clear=True)
    copy(r[0:+4], S[1:+1, bx * 4:+4])
    reduce_min(t[0:+4, 0:+40], r[0:+4], axis=1, clear=True)
    copy(r[0:+4], S[2:+1, bx * 4:+4])
    reduce_absmax(t[0:+4, 0:+40], k[0:+4, 0:+1], axis=1, clear=True)
    copy(k[0:+4, 0:+1], S[3:+1, bx * 4:+4])
    fill(r[0:+4], 0.5)
    reduce_max(t[0:+4, 0:+40], r[0:+4], axis=1, clear=False)
    copy(r[0:+4], S[4:+1, bx * 4:+4])
"""

REDUCE_COLUMNS = """
kernel("reduce_columns")
M = dim(int32, max=9)
X = tensor(float32, (M, 20), ("M", "20"), access="in")
S = tensor(float32, (20,), ("20",), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    t = alloc(float32, (9, 20), "local.fragment")
    r = alloc(float32, (20,), "local.fragment")
    copy(X[0:+9, 0:+20], t[0:+9, 0:+20])
    reduce_sum(t[0:+9, 0:+20], r[0:+20], axis=0, clear=True)
    copy(r[0:+20], S[0:+20])
"""

ACCUMULATE = """
kernel("accumulate")
n = dim(int32, max=100)
x = tensor(float32, (n,), ("n",), access="in")
y = tensor(float32, (4,), ("4",), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    acc = alloc(float32, (4,), "local.fragment")
    fill(acc[0:+4], 0.25)
    for i in parallel(n):
        acc[0] = acc[0] + x[i]
        acc[1] = max(acc[1], x[i])
        if x[i] > 0.0:
            acc[2] = acc[2] + 1.0
        acc[3] = x[i] * x[i] + acc[3]
    for i in parallel(n):
        acc[i // 1000] = acc[i // 1000] + 1.0
    copy(acc[0:+4], y[0:+4])
"""

MASKED = """
kernel("masked")
n = dim(int32)
x = tensor(float32, (n,), ("n",), access="in")
m = tensor(bool, (n,), ("n",), access="in")
alpha = scalar(float32)
y = tensor(float32, (n,), ("n",), access="out")
z = tensor(bool, (n,), ("n",), access="out")
with launch((n + 31) // 32, threads=(128, 1, 1)) as (bx,):
    for i in parallel(32):
        p = bx * 32 + i
        y[p] = if_then_else(m[p], x[p] * alpha, 0.0)
        z[p] = x[p] > 0.5
"""

NAMED_FLOATS = """
kernel("named_floats")
n = dim(int32)
x = tensor(float32, (n,), ("n",), access="in")
alpha = scalar(float32)
y = tensor(float32, (n,), ("n",), access="out")
z = tensor(float32, (n,), ("n",), access="out")
with launch((n + 31) // 32, threads=(128, 1, 1)) as (bx,):
    for i in parallel(32):
        p = bx * 32 + i
        c = cast(float32, p) * alpha
        d = (cast(float32, i) + alpha) / alpha
        y[p] = c * c + exp2((cast(float32, i - 40)) * alpha)
        z[p] = if_then_else(c > x[p], d * alpha, d - c)
"""

GUARDED = """
kernel("guarded")
n = dim(int32)
x = tensor(float32, (n,), ("n",), access="in")
y = tensor(float32, (n,), ("n",), access="inout")
with launch((n + 31) // 32, threads=(128, 1, 1)) as (bx,):
    f = alloc(float32, (32,), "local.fragment")
    fill(f[0:+32], -1.0)
    for i in parallel(32):
        if x[bx * 32 + i] > 0.0:
            f[i] = x[bx * 32 + i]
        else:
            if i % 2 == 0:
                continue
            f[i] = f[i] - 1.0
        f[i] = f[i] * 3.0
    for i in parallel(32):
        if bx * 32 + i < n - 1:
            y[bx * 32 + i] = f[i] + x[bx * 32 + i + 1]
    for i in parallel(32):
        if f[i] > 4.0:
            y[bx * 32 + i] = 100.0
"""

GATHER = """
kernel("gather")
T = dim(int32)
V = dim(int32)
H = dim(int32)
ids = tensor(int64, (T,), ("T",), access="in")
W = tensor(float32, (V, H), ("V", "H"), access="in")
Y = tensor(float32, (T, H), ("T", "H"), access="out")
with launch((T + 3) // 4, (H + 31) // 32, threads=(128, 1, 1)) as (bx, by):
    for i, j in parallel(4, 32):
        row = ids[bx * 4 + i]
        Y[bx * 4 + i, by * 32 + j] = W[row, by * 32 + j]
"""

SCATTER = """
kernel("scatter")
n = dim(int32)
ids = tensor(int32, (n,), ("n",), access="in")
y = tensor(int32, (n,), ("n",), access="inout")
with launch(1, threads=(128, 1, 1)) as (bx,):
    for i in parallel(n):
        y[ids[i]] = i * 2
"""

CONTROL = """
kernel("control")
n = dim(int32)
x = tensor(int32, (n,), ("n",), access="in")
y = tensor(int32, (8,), ("8",), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    total = alloc(int32, (1,), "local.var", init=100)
    count = alloc(int32, (1,), "local.var")
    tail = alloc(int32, (1,), "local.var")
    for k in serial(0, n, 1):
        t = x[k] * 2
        if t < 0:
            break
        if t % 3 == 0:
            continue
        else:
            count[0] = count[0] + 1
        total[0] = total[0] + t
    while total[0] > 10:
        total[0] = total[0] - 7
        assume(total[0] >= 3)
        if total[0] == 50:
            break
    for k in serial(n, 0, -2):
        tail[0] = tail[0] * 3 + k
    for k in serial(1, n, 3):
        tail[0] = tail[0] * 5 + k
    for k in unroll(0, 3, 1):
        tail[0] = tail[0] + k
    y[0] = total[0]
    y[1] = count[0]
    y[2] = tail[0]
    y[3] = (n - 20) // 7
    y[4] = (n - 20) % 7
    y[5] = truncdiv(n - 20, 7)
    y[6] = select(n > 5, 1, 2) + cast(int32, n > 3)
    y[7] = min(n, 3) << 2
"""

PRIVATE = """
kernel("private")
n = dim(int32)
k = dim(int32)
part = tensor(float32, (k, n), ("k", "n"), access="in")
y = tensor(float32, (n,), ("n",), access="out")
with launch((n + 31) // 32, threads=(128, 1, 1)) as (bx,):
    for i in parallel(32):
        acc = alloc(float32, (1,), "local.var")
        pair = alloc(float32, (2,), "local")
        pair[0] = 1.0
        pair[1] = 2.0
        for p in serial(0, k, 1):
            acc[0] = acc[0] + part[p, bx * 32 + i] * pair[p % 2]
        y[bx * 32 + i] = acc[0] + pair[1]
"""

PRODUCTS = """
kernel("products")
M = dim(int32)
K = dim(int32)
N = dim(int32)
A = tensor(float32, (M, K), ("M", "K"), access="in")
B = tensor(float32, (K, N), ("K", "N"), access="in")
C = tensor(float32, (M, N), ("M", "N"), access="out")
D = tensor(float32, (M, N), ("M", "N"), access="out")
with launch((N + 15) // 16, (M + 7) // 8, threads=(128, 1, 1)) as (bx, by):
    a = alloc(float32, (8, 8), "shared.dyn")
    b = alloc(float32, (8, 16), "shared.dyn")
    at = alloc(float32, (8, 8), "shared.dyn")
    bt = alloc(float32, (16, 8), "shared.dyn")
    c = alloc(float32, (8, 16), "local.fragment")
    d = alloc(float32, (8, 16), "local.fragment")
    for ko in pipelined(0, (K + 7) // 8, num_stages=2):
        copy(A[by * 8:+8, ko * 8:+8], a[0:+8, 0:+8])
        copy(B[ko * 8:+8, bx * 16:+16], b[0:+8, 0:+16])
        for i, j in parallel(8, 8):
            at[i, j] = a[j, i]
        for i, j in parallel(16, 8):
            bt[i, j] = b[j, i]
        gemm(a[0:+8, 0:+8], b[0:+8, 0:+16], c[0:+8, 0:+16], clear=ko == 0)
        if ko == 0:
            gemm(at[0:+8, 0:+8], bt[0:+16, 0:+8], d[0:+8, 0:+16], trans_a=True, trans_b=True, clear=True)
        else:
            gemm(at[0:+8, 0:+8], bt[0:+16, 0:+8], d[0:+8, 0:+16], trans_a=True, trans_b=True, clear=False)
    copy(c[0:+8, 0:+16], C[by * 8:+8, bx * 16:+16])
    copy(d[0:+8, 0:+16], D[by * 8:+8, bx * 16:+16])
"""

WORKSPACE = """
kernel("workspace")
M = dim(int32)
N = dim(int32, max=64)
X = tensor(float32, (M, N), ("M", "N"), access="in")
Y = tensor(float32, (M,), ("M",), access="out")
part = alloc(float32, (4, M), "global.workspace")
span = (N + 3) // 4
with launch(M, 4, threads=(128, 1, 1)) as (bm, bp):
    f = alloc(float32, (16,), "local.fragment")
    s = alloc(float32, (1,), "local.fragment")
    for j in parallel(16):
        f[j] = if_then_else(j < span and bp * span + j < N, X[bm, bp * span + j], 0.0)
    reduce_sum(f[0:+16], s[0:+1], axis=0, clear=True)
    part[bp, bm] = s[0]
with launch((M + 15) // 16, threads=(128, 1, 1)) as (bm2,):
    for i in parallel(16):
        acc = alloc(float32, (1,), "local.var")
        for p in serial(0, 4, 1):
            acc[0] = acc[0] + part[p, bm2 * 16 + i]
        Y[bm2 * 16 + i] = acc[0]
"""

LARGE = """
kernel("large")
n = dim(int32)
x = tensor(float32, (n,), ("n",), access="in")
y = tensor(float32, (n,), ("n",), access="out")
with launch((n + 16383) // 16384, threads=(128, 1, 1)) as (bx,):
    a = alloc(float32, (16384,), "shared.dyn")
    b = alloc(float32, (16384,), "local.fragment")
    c = alloc(float32, (8,), "local.fragment")
    copy(x[bx * 16384:+16384], a[0:+16384])
    fill(c[0:+8], 2.0)
    for i in parallel(16384):
        b[i] = a[16383 - i] + c[3]
    for i in parallel(16384):
        y[bx * 16384 + i] = b[16383 - i] * a[i]
"""

HALF = """
kernel("half")
n = dim(int32)
x = tensor(float16, (n,), ("n",), access="in")
b = tensor(bfloat16, (n,), ("n",), access="in")
s = scalar(float16)
y = tensor(float16, (n,), ("n",), access="out")
z = tensor(bfloat16, (n,), ("n",), access="out")
w = tensor(float32, (n,), ("n",), access="out")
with launch((n + 31) // 32, threads=(128, 1, 1)) as (bx,):
    t = alloc(bfloat16, (32,), "local.fragment")
    for i in parallel(32):
        t[i] = cast(bfloat16, cast(float32, x[bx * 32 + i]) * 3.0)
    for i in parallel(32):
        y[bx * 32 + i] = x[bx * 32 + i] * s
        z[bx * 32 + i] = cast(bfloat16, cast(float32, b[bx * 32 + i]) + cast(float32, t[i]))
        w[bx * 32 + i] = cast(float32, cast(bfloat16, cast(float32, x[bx * 32 + i]) / 3.0))
"""

INTEGERS = """
kernel("integers")
n = dim(int32)
x = tensor(int8, (n,), ("n",), access="in")
u = tensor(uint8, (n,), ("n",), access="in")
y = tensor(int8, (n,), ("n",), access="out")
z = tensor(int32, (n,), ("n",), access="out")
q = tensor(int8, (n,), ("n",), access="out")
with launch((n + 63) // 64, threads=(128, 1, 1)) as (bx,):
    for i in parallel(64):
        y[bx * 64 + i] = x[bx * 64 + i]
    for i in parallel(64):
        a = cast(int32, x[bx * 64 + i])
        z[bx * 64 + i] = a * cast(int32, u[bx * 64 + i]) // 3 + a % 5
        q[bx * 64 + i] = cast(int8, cast(float32, x[bx * 64 + i]) * 0.5)
"""

FUNCTIONS = """
kernel("functions")
n = dim(int32)
x = tensor(float32, (n,), ("n",), access="in")
y = tensor(float32, (n,), ("n",), access="out")
with launch((n + 31) // 32, threads=(128, 1, 1)) as (bx,):
    for i in parallel(32):
        v = x[bx * 32 + i]
        w = max(v, 0.0) + min(v, fabs(v)) + sqrt(fabs(v)) + floor(v)
        y[bx * 32 + i] = exp(v) + tanh(v) * sigmoid(v) + w
"""

NAN_MAX = """
kernel("nan_max")
n = dim(int32, max=64)
x = tensor(float32, (n,), ("n",), access="in")
z = tensor(float32, (n,), ("n",), access="in")
y = tensor(float32, (n,), ("n",), access="out")
r = tensor(float32, (2,), ("2",), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    f = alloc(float32, (64,), "local.fragment")
    s = alloc(float32, (1,), "local.fragment")
    for i in parallel(64):
        y[i] = max(x[i], z[i]) + min(z[i], x[i])
    copy(x[0:+64], f[0:+64])
    reduce_max(f[0:+64], s[0:+1], axis=0, clear=True)
    r[0] = s[0]
    reduce_max(f[0:+64], s[0:+1], axis=0, clear=True, nan_propagate=True)
    r[1] = s[0]
"""

GATHER_LANES = """
kernel("gather_lanes")
n = dim(int32, max=64)
ids = tensor(int32, (n,), ("n",), access="in")
x = tensor(float32, (n,), ("n",), access="in")
y = tensor(float32, (n,), ("n",), access="out")
c = tensor(int32, (66,), ("66",), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    count = alloc(int32, (66,), "local.fragment")
    fill(count[0:+66], 0)
    for i in parallel(n):
        row = ids[i]
        y[i] = x[row] + x[i - row]
        count[row + 1] = count[row + 1] + i
    copy(count[0:+66], c[0:+66])
"""

NESTED = """
kernel("nested")
M = dim(int32)
N = dim(int32)
X = tensor(float32, (M, N), ("M", "N"), access="in")
Y = tensor(float32, (M, N), ("M", "N"), access="out")
with launch((M + 3) // 4, threads=(128, 1, 1)) as (bx,):
    for i in parallel(4):
        for j in parallel(N):
            Y[bx * 4 + i, j] = X[bx * 4 + i, j] + 1.0
"""

WIDE_INDEX = """
kernel("wide_index")
n = dim(int64)
m = dim(int64, min=1)
x = tensor(float64, (n, m), ("n", "m"), access="in")
y = tensor(float64, (n, m), ("n", "m"), access="out")
with launch(cast(int32, (m + int64(15)) // int64(16)), cast(int32, n), 2, threads=(128, 1, 1)) as (j, row, k):
    t = alloc(float64, (8,), "local.fragment")
    copy(x[row:+1, j * 16 + k * 8:+8], t[0:+8])
    for i in parallel(8):
        y[row, j * 16 + k * 8 + i] = t[i] * float64(2.0) + cast(float64, n)
"""

RUN_TIME_EXTENTS = """
kernel("run_time_extents")
n = dim(int32, min=1, max=50)
x = tensor(int32, (n,), ("n",), access="in")
y = tensor(int32, (n + 2,), ("n + 2",), access="out")
s = tensor(int32, (3,), ("3",), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    t = alloc(int32, (50,), "shared.dyn")
    r = alloc(int32, (3,), "local.fragment")
    q = alloc(int32, (1,), "local.fragment")
    fill(y[0:+(n + 2)], -5)
    copy(x[0:+n], t[0:+n])
    reduce_sum(t[0:+n], r[0:+1], axis=0, clear=True)
    reduce_max(t[0:+n], r[1:+1], axis=0, clear=True)
    reduce_min(t[0:+n], q[0:+1], axis=0, clear=True)
    copy(q[0:+1], r[2:+1])
    copy(t[0:+n], y[1:+n])
    copy(r[0:+3], s[0:+3])
"""

LOOPS = """
kernel("loops")
n = dim(int32)
steps = scalar(int32)
flag = scalar(bool)
x = tensor(float32, (n,), ("n",), access="in")
y = tensor(float32, (n,), ("n",), access="out")
with launch((n + 15) // 16, threads=(128, 1, 1)) as (bx,):
    f = alloc(float32, (16,), "local.fragment")
    g = alloc(float32, (16,), "local.fragment")
    k = alloc(int32, (1,), "local.var")
    copy(x[bx * 16:+16], f[0:+16])
    while k[0] < steps:
        for i in parallel(16):
            g[i] = f[15 - i] * 0.5
        for i in parallel(16):
            f[i] = g[i] + cast(float32, k[0])
        k[0] = k[0] + 1
    for i in vectorized(0, 16, 1):
        g[i] = f[i] + 1.0
    for k2 in unroll(0, 4, 1):
        for i in parallel(16):
            if flag and i < 4 * k2:
                g[i] = g[i] + 2.0
    copy(g[0:+16], y[bx * 16:+16])
"""

BOOLS = """
kernel("bools")
n = dim(int32)
x = tensor(int32, (n,), ("n",), access="in")
z = tensor(float32, (n,), ("n",), access="in")
a = tensor(bool, (n,), ("n",), access="out")
b = tensor(int32, (n,), ("n",), access="out")
c = tensor(float32, (n,), ("n",), access="out")
with launch((n + 31) // 32, threads=(128, 1, 1)) as (bx,):
    m = alloc(bool, (32,), "local.fragment")
    for i in parallel(32):
        odd = x[bx * 32 + i] % 2 == 1
        m[i] = odd and x[bx * 32 + i] > 3 or x[bx * 32 + i] < -2
    for i in parallel(32):
        a[bx * 32 + i] = not m[i]
        b[bx * 32 + i] = select(m[i], x[bx * 32 + i], 0 - x[bx * 32 + i] * 2) + cast(int32, m[31 - i])
        c[bx * 32 + i] = select(z[bx * 32 + i] != z[bx * 32 + i], 9.0, z[bx * 32 + i])
"""

CHANGING = """
kernel("changing")
n = dim(int32)
x = tensor(int32, (n,), ("n",), access="in")
y = tensor(int32, (n,), ("n",), access="out")
z = tensor(int32, (4,), ("4",), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    v = alloc(int32, (1,), "local.var", init=5)
    f = alloc(int32, (64,), "local.fragment")
    g = alloc(int32, (64,), "local.fragment")
    if v[0] > 3:
        v[0] = 1
        if v[0] > 3:
            z[0] = 7
        else:
            z[0] = 8
    for k in serial(0, v[0] + 3, 1):
        v[0] = v[0] - 1
        if k < v[0] + 3:
            z[1] = k
    z[2] = v[0]
    copy(x[0:+64], f[0:+64])
    fill(g[0:+64], 1)
    for i in parallel(64):
        if f[i] > 5:
            f[i] = 0 - f[i]
            g[i] = 2
        else:
            f[i] = 9
            g[i] = g[i] + 5
        seen = f[i] < 0
        f[i] = f[i] + 100
        if seen:
            g[i] = g[i] * 10
    for i in parallel(64):
        y[i] = f[i] * 1000 + g[i]
    z[3] = f[0]
"""

DIVISIBLE = """
kernel("divisible")
M = dim(int32, div=8, min=8)
N = dim(int32, div=16)
X = tensor(float32, (M, N), ("M", "N"), access="in")
Y = tensor(float32, (M, N), ("M", "N"), access="out")
with launch(N // 16, M // 8, threads=(128, 1, 1)) as (bx, by):
    t = alloc(float32, (8, 16), "local.fragment")
    s = alloc(float32, (8,), "local.fragment")
    copy(X[by * 8:+8, bx * 16:+16], t[0:+8, 0:+16])
    reduce_sum(t[0:+8, 0:+16], s[0:+8], axis=1, clear=True)
    for i, j in parallel(8, 16):
        Y[by * 8 + i, bx * 16 + j] = t[i, j] - s[i]
"""

KERNELS = {
    name.lower(): text for name, text in list(globals().items()) if name.isupper() and isinstance(text, str)
}
