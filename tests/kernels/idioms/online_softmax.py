"""What kernels of attention here share: fragments of a row's sums, and the step from scores to weights."""

from __future__ import annotations

import tilec
import tilec.language as T

FAST = {tilec.PassConfigKey.TL_ENABLE_FAST_MATH: True}
FULL_ROW = T.GemmWarpPolicy.FullRow


def vectors(rows, count=5):
    """Fragments of one float32 per row: maximum, the one before, correction, sum of a block, sum."""
    return [T.alloc_fragment([rows], "float32") for _ in range(count)]


@T.macro
def weigh(S, P, o, top, old, corr, part, total, scale, bM, bN, D):
    """Scores become weights in base 2; the output and the sums so far are brought to the new maximum."""
    T.copy(top, old)
    T.reduce_max(S, top, dim=1, clear=False)
    for i in T.Parallel(bM):
        top[i] = T.max(top[i], old[i])
    for i in T.Parallel(bM):
        corr[i] = T.exp2(old[i] * scale - top[i] * scale)
    for i, j in T.Parallel(bM, bN):
        S[i, j] = T.exp2(S[i, j] * scale - top[i] * scale)
    T.reduce_sum(S, part, dim=1)
    for i in T.Parallel(bM):
        total[i] = total[i] * corr[i] + part[i]
    T.copy(S, P)
    for i, d in T.Parallel(bM, D):
        o[i, d] *= corr[i]
