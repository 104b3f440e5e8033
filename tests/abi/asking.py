"""Kernels that ask for the multiprocessors of the device that they will run on."""

import tilec.language as T
from tilec.carver.arch import driver


def count():
    """What a launch has got for an answer."""

    @T.prim_func
    def main(S: T.Tensor((1,), "int32")):
        with T.Kernel(1, threads=32):
            S[0] = driver.get_num_sms()

    return main


def total(N, block=32):
    """The sum of a vector: as many parts as there are multiprocessors, in a workspace of that size."""
    sms = driver.get_num_sms()

    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((1,), "float32")):
        parts = T.alloc_global((sms, 16), "float32")
        with T.Kernel(sms, threads=32) as pid:
            own, part = T.alloc_fragment((block,), "float32"), T.alloc_fragment((1,), "float32")
            T.clear(own)
            for tile in T.Persistent([T.ceildiv(N, block)], sms, pid):
                for i in T.Parallel(block):
                    own[i] += X[tile * block + i]
            T.reduce_sum(own, part)
            parts[pid, 0] = part[0]
        with T.Kernel(1, threads=32):
            found = T.alloc_var("float32")
            for i in T.serial(sms):
                found += parts[i, 0]
            Y[0] = found

    return main


def fixed(N, blocks=0):
    """X + 1; a config may give the number of blocks, so that one variant asks and another does not."""
    sms = blocks or driver.get_num_sms()

    @T.prim_func
    def main(X: T.Tensor((N,), "int32"), Y: T.Tensor((N,), "int32")):
        with T.Kernel(sms, threads=32) as pid:
            for tile in T.Persistent([T.ceildiv(N, 32)], sms, pid):
                for i in T.Parallel(32):
                    Y[tile * 32 + i] = X[tile * 32 + i] + 1

    return main
