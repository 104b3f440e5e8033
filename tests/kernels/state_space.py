"""State-space scans: chunks of a selective scan as products, their states, and recurrences step by step."""

from __future__ import annotations

import argparse
import itertools

import numpy as np
from family_math import silu, wide

import tilec
import tilec.language as T
from tilec.autotuner import *  # noqa: F403


def get_configs():
    iter_params = dict(
        block_M=[16, 32], block_N=[16], block_K=[32], block_Dstate=[32], num_stages=[2], threads=[64]
    )
    return [
        dict(zip(iter_params, values, strict=True)) for values in itertools.product(*iter_params.values())
    ]


@autotune(configs=get_configs(), warmup=1, rep=2)  # noqa: F405
@tilec.jit(out_idx=[7], pass_configs={tilec.PassConfigKey.TL_ENABLE_FAST_MATH: True})
def chunk_scan(
    batch,
    seqlen,
    chunk_size,
    ngroups,
    nheads,
    headdim,
    dstate,
    block_M=16,
    block_N=16,
    block_K=32,
    block_Dstate=32,
    num_stages=2,
    threads=64,
):
    """Outputs of each chunk: C S exp(dA) from the state before it, its own causal products, and D x."""
    dtype = T.float16
    accum_dtype = T.float32
    nchunks = T.ceildiv(seqlen, chunk_size)
    p = 1.44269504

    @T.prim_func
    def main(
        cb: T.Tensor((batch, nchunks, ngroups, chunk_size, chunk_size), dtype),
        x: T.Tensor((batch, seqlen, nheads, headdim), dtype),
        dt: T.Tensor((batch, nheads, nchunks, chunk_size), dtype),
        dA_cumsum: T.Tensor((batch, nheads, nchunks, chunk_size), dtype),
        C: T.Tensor((batch, seqlen, ngroups, dstate), dtype),
        prev_states: T.Tensor((batch, nchunks, nheads, headdim, dstate), dtype),
        D: T.Tensor((nheads), dtype),
        Output: T.Tensor((batch, seqlen, nheads, headdim), dtype),
    ):
        with T.Kernel(
            nheads,
            T.ceildiv(chunk_size, block_M) * T.ceildiv(headdim, block_N),
            batch * nchunks,
            threads=threads,
        ) as (bz, bx, by):
            acc_o = T.alloc_fragment((block_M, block_N), accum_dtype)
            acc_o_shared = T.alloc_shared((block_M, block_N), dtype)
            cb_shared = T.alloc_shared((block_M, block_K), dtype, scope="shared.dyn")
            cb_local = T.alloc_fragment((block_M, block_K), dtype)
            dA_cs_k_shared = T.alloc_shared((block_K), dtype, scope="shared")
            dA_cs_k_local = T.alloc_fragment((block_K), accum_dtype)
            dA_cs_m_local = T.alloc_fragment((block_M), accum_dtype)
            dt_shared = T.alloc_shared((block_K), dtype, scope="shared")
            dt_local = T.alloc_fragment((block_K), accum_dtype)
            x_shared = T.alloc_shared((block_K, block_N), dtype, scope="shared.dyn")
            dA_cs_m_shared = T.alloc_shared((block_M), dtype, scope="shared")
            scale_m_local = T.alloc_fragment((block_M), accum_dtype)
            C_shared = T.alloc_shared((block_M, block_Dstate), dtype)
            prev_state_shared = T.alloc_shared((block_N, block_Dstate), dtype)
            D_local = T.alloc_fragment((1), accum_dtype)
            x_residual_shared = T.alloc_shared((block_M, block_N), dtype, scope="shared.dyn")
            x_residual_local = T.alloc_fragment((block_M, block_N), accum_dtype)

            batch_idx = by % batch
            chunk_idx = by // batch
            m_idx = bx // T.ceildiv(headdim, block_N)
            n_idx = bx % T.ceildiv(headdim, block_N)

            T.annotate_layout(
                {
                    acc_o_shared: tilec.layout.make_swizzled_layout(acc_o_shared),
                    cb_shared: tilec.layout.make_swizzled_layout(cb_shared),
                    x_residual_shared: tilec.layout.make_swizzled_layout(x_residual_shared),
                }
            )
            T.no_set_max_nreg()
            T.copy(
                dA_cumsum[batch_idx, bz, chunk_idx, m_idx * block_M : (m_idx + 1) * block_M], dA_cs_m_shared
            )
            T.copy(dA_cs_m_shared, dA_cs_m_local)
            T.clear(acc_o)
            for i in T.Parallel(block_M):
                scale_m_local[i] = T.exp2(dA_cs_m_local[i] * p)
            for kd in T.Pipelined(T.ceildiv(dstate, block_Dstate), num_stages=num_stages):
                T.copy(
                    C[
                        batch_idx,
                        chunk_idx * chunk_size + m_idx * block_M : chunk_idx * chunk_size
                        + (m_idx + 1) * block_M,
                        bz // (nheads // ngroups),
                        kd * block_Dstate : (kd + 1) * block_Dstate,
                    ],
                    C_shared,
                )
                T.copy(
                    prev_states[
                        batch_idx,
                        chunk_idx,
                        bz,
                        n_idx * block_N : (n_idx + 1) * block_N,
                        kd * block_Dstate : (kd + 1) * block_Dstate,
                    ],
                    prev_state_shared,
                )
                T.gemm(C_shared, prev_state_shared, acc_o, transpose_B=True)
            for i, j in T.Parallel(block_M, block_N):
                acc_o[i, j] *= scale_m_local[i]

            loop_range = T.ceildiv((m_idx + 1) * block_M, block_K)
            for k in T.Pipelined(loop_range, num_stages=num_stages):
                T.copy(
                    cb[
                        batch_idx,
                        chunk_idx,
                        bz // (nheads // ngroups),
                        m_idx * block_M : (m_idx + 1) * block_M,
                        k * block_K : (k + 1) * block_K,
                    ],
                    cb_shared,
                )
                T.copy(cb_shared, cb_local)
                T.copy(dA_cumsum[batch_idx, bz, chunk_idx, k * block_K : (k + 1) * block_K], dA_cs_k_shared)
                T.copy(dA_cs_k_shared, dA_cs_k_local)
                for i, j in T.Parallel(block_M, block_K):
                    cb_local[i, j] = cb_local[i, j] * T.exp2(dA_cs_m_local[i] * p - dA_cs_k_local[j] * p)
                T.copy(dt[batch_idx, bz, chunk_idx, k * block_K : (k + 1) * block_K], dt_shared)
                T.copy(dt_shared, dt_local)
                for i, j in T.Parallel(block_M, block_K):
                    cb_local[i, j] *= dt_local[j]
                for i, j in T.Parallel(block_M, block_K):
                    cb_local[i, j] = T.if_then_else(m_idx * block_M + i >= k * block_K + j, cb_local[i, j], 0)
                T.copy(
                    x[
                        batch_idx,
                        chunk_idx * chunk_size + k * block_K : chunk_idx * chunk_size + (k + 1) * block_K,
                        bz,
                        n_idx * block_N : (n_idx + 1) * block_N,
                    ],
                    x_shared,
                )
                T.gemm(cb_local, x_shared, acc_o)

            D_local[0] = D[bz]
            T.copy(
                x[
                    batch_idx,
                    chunk_idx * chunk_size + m_idx * block_M : chunk_idx * chunk_size + (m_idx + 1) * block_M,
                    bz,
                    n_idx * block_N : (n_idx + 1) * block_N,
                ],
                x_residual_shared,
            )
            T.copy(x_residual_shared, x_residual_local)
            for i, j in T.Parallel(block_M, block_N):
                acc_o[i, j] += x_residual_local[i, j] * D_local[0]
            T.copy(acc_o, acc_o_shared)
            T.copy(
                acc_o_shared,
                Output[
                    batch_idx,
                    chunk_idx * chunk_size + m_idx * block_M : chunk_idx * chunk_size + (m_idx + 1) * block_M,
                    bz,
                    n_idx * block_N : (n_idx + 1) * block_N,
                ],
            )

    return main


@tilec.jit(out_idx=[-1])
def chunk_state(
    batch, seqlen, chunk_size, ngroups, nheads, headdim, dstate, block_M=32, block_N=32, block_K=16
):
    """What each chunk adds to the state: sum_l exp(dA_last - dA_l) dt_l x_l B_l^T."""
    dtype, accum_dtype = "float16", "float"
    nchunks = T.ceildiv(seqlen, chunk_size)
    p = 1.44269504
    num_stages, threads = 3, 128

    @T.prim_func
    def main(
        B: T.Tensor((batch, seqlen, ngroups, dstate), dtype),
        x: T.Tensor((batch, seqlen, nheads, headdim), dtype),
        dt: T.Tensor((batch, nheads, nchunks, chunk_size), dtype),
        dA_cumsum: T.Tensor((batch, nheads, nchunks, chunk_size), dtype),
        Output: T.Tensor((batch, nchunks, nheads, headdim, dstate), dtype),
    ):
        with T.Kernel(
            nheads, T.ceildiv(headdim, block_M) * T.ceildiv(dstate, block_N), batch * nchunks, threads=threads
        ) as (bz, bx, by):
            x_shared = T.alloc_shared((block_K, block_M), dtype)
            x_local = T.alloc_fragment((block_K, block_M), dtype)
            xt_local = T.alloc_fragment((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            dt_shared = T.alloc_shared((block_K), dtype)
            dA_cumsum_shared = T.alloc_shared((block_K), dtype)
            acc_o = T.alloc_fragment((block_M, block_N), accum_dtype)
            acc_o_shared = T.alloc_shared((block_M, block_N), dtype)
            scale = T.alloc_fragment((block_K), accum_dtype)
            dA_cs_last = T.alloc_fragment((1), accum_dtype)
            dA_cumsum_local = T.alloc_fragment((block_K), accum_dtype)
            dt_local = T.alloc_fragment((block_K), accum_dtype)
            loop_range = T.ceildiv(chunk_size, block_K)
            batch_idx = by % batch
            chunk_idx = by // batch
            m_idx = bx // T.ceildiv(dstate, block_N)
            n_idx = bx % T.ceildiv(dstate, block_N)
            T.annotate_layout(
                {
                    x_shared: tilec.layout.make_swizzled_layout(x_shared),
                    acc_o_shared: tilec.layout.make_swizzled_layout(acc_o_shared),
                }
            )
            dA_cs_last[0] = dA_cumsum[batch_idx, bz, chunk_idx, chunk_size - 1]
            T.clear(acc_o)
            for k in T.Pipelined(loop_range, num_stages=num_stages):
                T.copy(
                    x[
                        batch_idx,
                        chunk_idx * chunk_size + k * block_K : chunk_idx * chunk_size + (k + 1) * block_K,
                        bz,
                        m_idx * block_M : (m_idx + 1) * block_M,
                    ],
                    x_shared,
                )
                T.copy(dA_cumsum[batch_idx, bz, chunk_idx, k * block_K : (k + 1) * block_K], dA_cumsum_shared)
                T.copy(dt[batch_idx, bz, chunk_idx, k * block_K : (k + 1) * block_K], dt_shared)
                T.copy(dA_cumsum_shared, dA_cumsum_local)
                T.copy(dt_shared, dt_local)
                for i in T.Parallel(block_K):
                    scale[i] = T.exp2(dA_cs_last[0] * p - dA_cumsum_local[i] * p) * dt_local[i]
                T.copy(x_shared, x_local)
                for i, j in T.Parallel(block_M, block_K):
                    xt_local[i, j] = x_local[j, i] * scale[j]
                T.copy(
                    B[
                        batch_idx,
                        chunk_idx * chunk_size + k * block_K : chunk_idx * chunk_size + (k + 1) * block_K,
                        bz // (nheads // ngroups),
                        n_idx * block_N : (n_idx + 1) * block_N,
                    ],
                    B_shared,
                )
                T.gemm(xt_local, B_shared, acc_o)
            T.copy(acc_o, acc_o_shared)
            T.copy(
                acc_o_shared,
                Output[
                    batch_idx,
                    chunk_idx,
                    bz,
                    m_idx * block_M : (m_idx + 1) * block_M,
                    n_idx * block_N : (n_idx + 1) * block_N,
                ],
            )

    return main


@tilec.jit
def state_passing(States, dA_last, Initial, blk: int = 64):
    """The state before each chunk, and the last one: a scan over chunks."""
    B, N, H, D = T.const("B N H D")
    States: T.Tensor[[B, N, H, D], T.float16]
    dA_last: T.Tensor[[B, H, N], T.float16]
    Initial: T.Tensor[[B, H, D], T.float32]
    Out = T.empty((B, N, H, D), T.float16)
    Final = T.empty((B, H, D), T.float32)
    with T.Kernel(T.ceildiv(D, blk), H, B, threads=64) as (bx, h, b):
        state = T.alloc_fragment((blk,), T.float32)
        T.copy(Initial[b, h, bx * blk : (bx + 1) * blk], state)
        for n in range(N):
            T.copy(state, Out[b, n, h, bx * blk : (bx + 1) * blk])
            decay = T.exp(T.cast(dA_last[b, h, n], T.float32))
            for i in T.Parallel(blk):
                state[i] = state[i] * decay + States[b, n, h, bx * blk + i]
        T.copy(state, Final[b, h, bx * blk : (bx + 1) * blk])
    return Out, Final


@tilec.jit(out_idx=[-1])
def selective_scan(batch, dim, seqlen, dstate, blk=32, delta_softplus=True, dtype="float32"):
    """y_t = C_t h_t + D u_t, gated by silu(z), with h_t = exp(delta A) h_{t-1} + delta B_t u_t."""

    @T.macro
    def softplus(x):
        return T.if_then_else(x <= 20.0, T.log1p(T.exp(x)), x)

    @T.prim_func
    def main(
        u: T.Tensor((batch, dim, seqlen), dtype),
        delta: T.Tensor((batch, dim, seqlen), dtype),
        A: T.Tensor((dim, dstate), "float32"),
        B: T.Tensor((batch, dstate, seqlen), dtype),
        C: T.Tensor((batch, dstate, seqlen), dtype),
        D: T.Tensor((dim,), "float32"),
        z: T.Tensor((batch, dim, seqlen), dtype),
        out: T.Tensor((batch, dim, seqlen), dtype),
    ):
        with T.Kernel(T.ceildiv(dim, blk), batch, threads=blk) as (bd, bb):
            h = T.alloc_fragment((blk, dstate), "float32")
            y = T.alloc_fragment((blk, dstate), "float32")
            total = T.alloc_fragment((blk,), "float32")
            step = T.alloc_fragment((blk,), "float32")
            T.clear(h)
            for t in T.serial(seqlen):
                for i in T.Parallel(blk):
                    raw = T.cast(delta[bb, bd * blk + i, t], "float32")
                    step[i] = softplus(raw) if delta_softplus else raw
                for i, s in T.Parallel(blk, dstate):
                    h[i, s] = (
                        h[i, s] * T.exp(step[i] * A[bd * blk + i, s])
                        + step[i] * B[bb, s, t] * u[bb, bd * blk + i, t]
                    )
                    y[i, s] = h[i, s] * C[bb, s, t]
                T.reduce_sum(y, total, dim=-1)
                for i in T.Parallel(blk):
                    gate = z[bb, bd * blk + i, t] * T.sigmoid(z[bb, bd * blk + i, t])
                    out[bb, bd * blk + i, t] = (total[i] + D[bd * blk + i] * u[bb, bd * blk + i, t]) * gate

    return main


@tilec.jit
def wkv(R, K, V, W, U, S0):
    """A recurrence with a decay per channel: y_t = r_t (S + u k_t v_t^T), S = w_t S + k_t v_t^T."""
    B, L, H, D = T.const("B, L, H, D")
    R: T.Tensor[[B, L, H, D], T.float32]
    K: T.Tensor[[B, L, H, D], T.float32]
    V: T.Tensor[[B, L, H, D], T.float32]
    W: T.Tensor[[B, L, H, D], T.float32]
    U: T.Tensor[[H, D], T.float32]
    S0: T.Tensor[[B, H, D, D], T.float32]
    Y = T.empty((B, L, H, D), dtype=T.float32)
    S1 = T.empty(B, H, D, D, dtype=T.float32)
    with T.Kernel(H, B, threads=D) as (h, b):
        state, kv = T.alloc_fragment((D, D), T.float32), T.alloc_fragment((D, D), T.float32)
        r, k, w = (T.alloc_shared((D,), T.float32) for _ in range(3))
        v, y = T.alloc_shared((D,), T.float32), T.alloc_fragment((D,), T.float32)
        T.copy(S0[b, h, :, :], state)
        for t in T.serial(L):
            T.copy(R[b, t, h, :], r)
            T.copy(K[b, t, h, :], k)
            T.copy(V[b, t, h, :], v)
            for i in T.Parallel(D):
                w[i] = T.exp(-T.exp(W[b, t, h, i]))
            for i, j in T.Parallel(D, D):
                pair = k[i] * v[j]
                kv[i, j] = r[i] * (state[i, j] + U[h, i] * pair)
                state[i, j] = w[i] * state[i, j] + pair
            T.reduce_sum(kv, y, dim=0)
            T.copy(y, Y[b, t, h, :])
        T.copy(state, S1[b, h, :, :])
    return Y, S1


@tilec.jit(out_idx=[-1])
def chunk_cb(batch, seqlen, chunk_size, ngroups, dstate, block=32):
    """C B^T within each chunk, once for all heads of a group."""
    nchunks = tilec.cdiv(seqlen, chunk_size)

    @T.prim_func
    def main(
        C: T.Tensor((batch, seqlen, ngroups, dstate), "float16"),
        B: T.Tensor((batch, seqlen, ngroups, dstate), "float16"),
        CB: T.Tensor((batch, nchunks, ngroups, chunk_size, chunk_size), "float16"),
    ):
        with T.Kernel(
            T.ceildiv(chunk_size, block), T.ceildiv(chunk_size, block), batch * nchunks * ngroups, threads=128
        ) as (bn, bm, bz):
            b, c, g = T.index_to_coordinates(bz, [batch, nchunks, ngroups])
            Cs, Bs = T.alloc_shared((block, dstate), "float16"), T.alloc_shared((block, dstate), "float16")
            acc = T.alloc_fragment((block, block), "float32")
            if bn <= bm:
                row, column = c * chunk_size + bm * block, c * chunk_size + bn * block
                T.copy(C[b, row : row + block, g, :], Cs)
                T.copy(B[b, column : column + block, g, :], Bs)
                T.gemm(Cs, Bs, acc, transpose_B=True, clear_accum=True)
            else:
                T.clear(acc)
            T.copy(acc, CB[b, c, g, bm * block, bn * block])

    return main


# ---- references and inputs ----


def _split(array, chunk=32):
    """(batch, length, ...) as (batch, chunks, chunk, ...)."""
    return array.reshape(array.shape[0], -1, chunk, *array.shape[2:])


def chunk_scan_reference(cb, x, dt, dA_cumsum, C, prev_states, D):
    cb, x, dt, dA, C, states, D = (wide(each) for each in (cb, x, dt, dA_cumsum, C, prev_states, D))
    chunk, heads = cb.shape[-1], x.shape[2]
    per = heads // cb.shape[2]
    xs, cs = _split(x, chunk), _split(C, chunk).repeat(per, 3)
    decay = np.exp(dA[..., :, None] - dA[..., None, :])
    scores = cb.repeat(per, 2).swapaxes(1, 2) * np.tril(decay) * dt[..., None, :]
    inner = np.einsum("bhcij,bcjhd->bcihd", scores, xs)
    past = np.einsum("bcihs,bchds->bcihd", cs, states) * np.exp(dA).transpose(0, 2, 3, 1)[..., None]
    return (inner + past).reshape(x.shape) + x * D[:, None]


def _steps(dims, rng):
    """dt, and the running sums of dt A in each chunk."""
    B, S, L, H = (dims[name] for name in ("batch", "seqlen", "chunk_size", "nheads"))
    dt = rng.uniform(0.01, 0.2, (B, H, S // L, L)).astype(np.float16)
    return dt, np.cumsum(-wide(dt), -1).astype(np.float16)


def _projection(dims, rng):
    return rng.standard_normal([dims[name] for name in ("batch", "seqlen", "ngroups", "dstate")]) * 0.3


def _values(dims, rng):
    return rng.standard_normal([dims[name] for name in ("batch", "seqlen", "nheads", "headdim")])


def chunk_scan_inputs(dims, rng):
    B, S, L, H, P, N = (
        dims[name] for name in ("batch", "seqlen", "chunk_size", "nheads", "headdim", "dstate")
    )
    C, Bp = _projection(dims, rng), _projection(dims, rng)
    cb = chunk_cb_reference(C, Bp, L)
    dt, dA = _steps(dims, rng)
    states = rng.standard_normal((B, S // L, H, P, N)) * 0.3
    return [cb, _values(dims, rng), dt, dA, C, states, rng.standard_normal(H)]


def chunk_state_reference(B, x, dt, dA_cumsum):
    B, x, dt, dA = (wide(each) for each in (B, x, dt, dA_cumsum))
    chunk = dt.shape[-1]
    bs = _split(B, chunk).repeat(x.shape[2] // B.shape[2], 3)
    weights = (np.exp(dA[..., -1:] - dA) * dt).transpose(0, 2, 3, 1)
    return np.einsum("bclh,bclhd,bclhs->bchds", weights, _split(x, chunk), bs)


def chunk_state_inputs(dims, rng):
    return [_projection(dims, rng), _values(dims, rng), *_steps(dims, rng)]


def state_passing_reference(States, dA_last, Initial):
    state, out = wide(Initial).copy(), np.zeros(States.shape, np.float32)
    for n in range(States.shape[1]):
        out[:, n] = state
        state = state * np.exp(wide(dA_last)[:, :, n, None]) + wide(States)[:, n]
    return out, state


def state_passing_inputs(dims, rng):
    B, N, H, D = (dims[name] for name in "BNHD")
    return [rng.standard_normal((B, N, H, D)), -rng.uniform(0, 1, (B, H, N)), rng.standard_normal((B, H, D))]


def selective_scan_reference(u, delta, A, B, C, D, z):
    h = np.zeros((*u.shape[:2], A.shape[1]))
    out = np.zeros(u.shape)
    steps = np.log1p(np.exp(delta))
    for t in range(u.shape[2]):
        h = h * np.exp(steps[:, :, t, None] * A) + (steps * u)[:, :, t, None] * B[:, None, :, t]
        out[:, :, t] = (h * C[:, None, :, t]).sum(-1)
    return (out + D[:, None] * u) * silu(z)


def selective_scan_inputs(dims, rng):
    Bt, D, L, N = (dims[name] for name in ("batch", "dim", "seqlen", "dstate"))
    shapes = ((Bt, D, L), (Bt, D, L), (D, N), (Bt, N, L), (Bt, N, L), (D,), (Bt, D, L))
    made = [rng.standard_normal(shape) for shape in shapes]
    made[2] = -np.abs(made[2])
    return made


def wkv_reference(R, K, V, W, U, S0):
    state, out = S0.astype(np.float64), np.zeros(R.shape)
    for t in range(R.shape[1]):
        pair = K[:, t, :, :, None] * V[:, t, :, None, :]
        out[:, t] = (R[:, t, :, :, None] * (state + U[None, :, :, None] * pair)).sum(2)
        state = np.exp(-np.exp(W[:, t]))[..., None] * state + pair
    return out, state


def chunk_cb_reference(C, B, chunk=32):
    """Zero in tiles above the diagonal ones."""
    return np.einsum("bcigs,bcjgs->bcgij", _split(wide(C), chunk), _split(wide(B), chunk))


def main(argv=None):
    """Chunk scan beside its reference, tuned."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--seq_len", type=int, default=64)
    parser.add_argument("--tune", action="store_true")
    args = parser.parse_args(argv)
    import torch

    batch, heads, seq_len, chunk, dim, dstate = args.batch, args.heads, args.seq_len, 32, 32, 32

    def ref_program(*inputs):
        return torch.from_numpy(chunk_scan_reference(*(each.cpu().numpy() for each in inputs))).half()

    config = {} if args.tune else dict(block_M=16, block_N=16, block_K=32, block_Dstate=32)
    kernel = chunk_scan(batch, seq_len, chunk, 1, heads, dim, dstate, **config)
    profiler = kernel.get_profiler(tilec.TensorSupplyType.Uniform)
    profiler.assert_allclose(ref_program, rtol=2e-2, atol=2e-2)
    if args.tune:
        print(f"Best config: {kernel.config}, best latency {kernel.latency:.4f} ms")
    print("All checks pass.")


if __name__ == "__main__":
    main()
