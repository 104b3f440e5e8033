"""Faults for compute-sanitizer to find: ``python3 planted.py memcheck`` writes past an allocation, with
``racecheck`` a warp reads what another writes to shared memory, without a barrier, with ``synccheck`` half of
a warp waits at a barrier that is for the other half. A tool that misses them proves nothing."""

from __future__ import annotations

import ctypes
import sys

import driver

from tilec.portable.loader import DeviceMemory

_THREADS, _BYTES = 64, 256
_KERNELS = {
    "memcheck": "st.global.u32 [%p + 8192], %t;",
    "racecheck": """
      shl.b32 %a, %t, 2;  mov.u32 %b, tile;  add.u32 %a, %a, %b;  st.shared.u32 [%a], %t;
      add.u32 %c, %t, 32;  and.b32 %c, %c, 63;  shl.b32 %c, %c, 2;  add.u32 %c, %c, %b;
      ld.shared.u32 %c, [%c];  shl.b32 %d, %t, 2;  cvt.u64.u32 %q, %d;  add.u64 %p, %p, %q;
      st.global.u32 [%p], %c;""",
    "synccheck": "and.b32 %a, %t, 31;  setp.ge.u32 %o, %a, 16;  @%o bar.warp.sync 0x0000ffff;",
}
_PTX = """.version 7.0
.target sm_80
.address_size 64
.visible .entry planted(.param .u64 out) {{
  .reg .pred %o;  .reg .u64 %p, %q;  .reg .u32 %t, %a, %b, %c, %d;  .shared .align 4 .b8 tile[256];
  ld.param.u64 %p, [out];  mov.u32 %t, %tid.x;
  {body}
  ret;
}}
"""


def main() -> None:
    """Runs the fault of one tool."""
    driver.start()
    memory = DeviceMemory(0, _BYTES)
    address = ctypes.c_uint64(memory.address)
    driver.run_ptx(_PTX.format(body=_KERNELS[sys.argv[1]]), "planted", _THREADS, address)


if __name__ == "__main__":
    main()
