"""States that lines change in every trip, and that reductions sum there."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.backends.cuda.nodes import AheadLoop
from tilec.backends.pipeline import lower
from tilec.ir.nodes import Alloc, walk
from tilec.targets import parse_target

STEPS = 5


def delta_rule(keys, values, threads, axis=0, moved=False):
    """h decays, loses what it has for a key and takes the value in its place; ``axis``: which one the keys
    are of; ``moved``: h comes from memory, and goes there, in each trip."""
    shape = (keys, values) if axis == 0 else (values, keys)

    @T.prim_func
    def kernel(
        q: T.Tensor((STEPS, keys), "float16"),
        k: T.Tensor((STEPS, keys), "float16"),
        v: T.Tensor((STEPS, values), "float16"),
        g: T.Tensor((STEPS,), "float32"),
        beta: T.Tensor((STEPS,), "float32"),
        states: T.Tensor((STEPS if moved else 1, *shape), "float32"),
        o: T.Tensor((STEPS, values), "float32"),
    ):
        with T.Kernel(1, threads=threads):
            h, p = T.alloc_fragment(shape, "float32"), T.alloc_fragment(shape, "float32")
            qs, ks = T.alloc_fragment((keys,), "float32"), T.alloc_fragment((keys,), "float32")
            vs, s = T.alloc_fragment((values,), "float32"), T.alloc_fragment((values,), "float32")
            T.clear(h)
            for t in T.serial(STEPS):
                T.copy(q[t, 0], qs)
                T.copy(k[t, 0], ks)
                T.copy(v[t, 0], vs)
                decay = T.exp(g[t])
                for i, j in T.Parallel(*shape):
                    h[i, j] = h[i, j] * decay
                for i, j in T.Parallel(*shape):
                    p[i, j] = h[i, j] * ks[i if axis == 0 else j]
                T.reduce_sum(p, s, dim=axis)
                for j in T.Parallel(values):
                    vs[j] = (vs[j] - s[j]) * beta[t]
                for i, j in T.Parallel(*shape):
                    h[i, j] += ks[i] * vs[j] if axis == 0 else ks[j] * vs[i]
                for i, j in T.Parallel(*shape):
                    p[i, j] = h[i, j] * qs[i if axis == 0 else j]
                T.reduce_sum(p, s, dim=axis)
                T.copy(s, o[t, 0])
                if moved:
                    T.copy(h, states[t, 0, 0])
            if not moved:
                T.copy(h, states[0, 0, 0])

    return kernel


def case(keys, values, axis, moved):
    rng = np.random.default_rng(5)
    q, k, v = ((rng.standard_normal((STEPS, size)) / 4).astype(np.float16) for size in (keys, keys, values))
    g, beta = -rng.random(STEPS).astype(np.float32), rng.random(STEPS).astype(np.float32)
    h, states, o = np.zeros((keys, values)), [], np.zeros((STEPS, values))
    for t in range(STEPS):
        h = h * np.exp(g[t])
        h = h + np.outer(k[t], (v[t] - k[t].astype(float) @ h) * beta[t])
        o[t] = q[t].astype(float) @ h
        states.append(h if axis == 0 else h.T)
    return (q, k, v, g, beta), (np.stack(states if moved else states[-1:]), o)


def lowered(kernel, inputs):
    (launch,) = lower(elaborated(kernel, inputs, None, {}, {}), parse_target("sm_90a")).launches
    return list(walk(launch.body))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("keys", "values", "threads"), [(64, 32, 64), (64, 64, 32), (16, 128, 64)])
def test_lanes_of_a_warp_share_what_is_summed(keys, values, threads, axis):
    inputs, expected = case(keys, values, axis, False)
    kernel = delta_rule(keys, values, threads, axis)
    agree(kernel, *inputs, expected=expected, rtol=1e-3, atol=1e-3)
    stmts = lowered(kernel, inputs)
    assert not any(isinstance(stmt, Alloc) and stmt.buffer.scope() == "shared.dyn" for stmt in stmts)


def test_fewer_values_than_warps_are_summed_across_these():
    inputs, expected = case(64, 4, 0, False)
    agree(delta_rule(64, 4, 256), *inputs, expected=expected, rtol=1e-3, atol=1e-3)


def test_what_trips_move_lies_as_memory_has_it():
    inputs, expected = case(64, 64, 1, True)
    kernel = delta_rule(64, 64, 64, 1, True)
    agree(kernel, *inputs, expected=expected, rtol=1e-3, atol=1e-3)
    held = next(
        stmt for stmt in lowered(kernel, inputs) if isinstance(stmt, Alloc) and stmt.buffer.name == "h"
    )
    assert [digit.size for digit in held.layout.digits[1] if digit.space == "lane"] == [16]


def test_numbers_of_a_trip_are_read_ahead():
    inputs, _ = case(64, 32, 0, False)
    ahead = [stmt for stmt in lowered(delta_rule(64, 32, 64), inputs) if isinstance(stmt, AheadLoop)]
    assert {str(loop.body[0].value.source.name) for loop in ahead} == {"q", "k", "v", "g", "beta"}
