"""A kernel whose configs may be wrong, crash or hang, and the function that the manifests name."""

from __future__ import annotations

import numpy as np

import tilec
import tilec.language as T

WRONG, CRASHES, HANGS = 3, 5, 7


@tilec.jit(out_idx=[-1])
def twice(n, block=64, fault=0, threads=1):
    """Y = 2 X, unless ``fault`` says otherwise; a test has the code of one that `CRASHES` replaced."""
    factor = {WRONG: 3.0, CRASHES: 5.0}.get(fault, 2.0)

    @T.prim_func
    def main(X: T.Tensor((n,), "float32"), Y: T.Tensor((n,), "float32")):
        """Y = 2 X."""
        with T.Kernel(T.ceildiv(n, block)) as b:
            for i in T.serial(block):
                if b * block + i < n:
                    if fault == HANGS:
                        acc = T.alloc_var("float32")
                        acc = 0.0
                        for _ in T.serial(1 << 30):
                            for _ in T.serial(1 << 20):
                                acc = acc * 0.5 + X[b * block + i]
                        Y[b * block + i] = acc
                    else:
                        Y[b * block + i] = X[b * block + i] * factor

    return main


def twice_reference(X):
    return X * np.float32(2.0)


def listed(dims, target):
    """Configs of a function: `configs` of the manifest."""
    return [{"block": 32}, {"block": 128 if target.startswith("x86") else 64}]
