"""Makes every Python process that finds this folder one of a machine with AMD GPUs: launches of the stand-in
for libamdhip64 (../programs/fake_hip.c) go to ../hip_device.py, which is imported by the first of them."""

import ctypes
import os

DRIVER = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint),
    ctypes.POINTER(ctypes.c_void_p),
)  # fmt: skip


@DRIVER
def _launch(*launch):
    from hip_device import run

    return run(*launch)


os.environ["FAKE_HIP_DRIVER"] = str(ctypes.cast(_launch, ctypes.c_void_p).value)
