"""Metal source as a library of this machine: compiled against `metal/metal_stdlib`, which gives Metal's names
a meaning. Processes that only run sources import this, and nothing that lowers kernels."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

from linked import link

HEADERS = Path(__file__).parent / "metal"
_FUNCTION = re.compile(r"^kernel void (\w+)\(\n(.*?)\) \{$", re.MULTILINE | re.DOTALL)
_BUFFER = re.compile(r"((?:device|constant) \w+\*) \w+ \[\[buffer\((\d+)\)\]\]")
_FLAGS = (
    "-std=c++17",
    "-O1",
    "-g0",
    "-w",
    "-shared",
    "-fPIC",
    "-nostdinc++",
    "-fno-exceptions",
    "-fno-rtti",
    "-ffp-contract=off",
)
_RUN = """
static void call_{name}(void** buffers) {{
  {name}({buffers}, tilec_grid_size, tilec_block_place, tilec_now->place, uint(tilec_lane()));
}}
extern "C" int run_{name}(void** buffers, const unsigned* shape) {{
  return tilec_launch(call_{name}, buffers, shape);
}}
"""


def compiled(source: str, folder: Path) -> ctypes.CDLL:
    """Functions ``run_<kernel>(buffers, shape)`` for the kernels of a source."""
    shared = re.sub(r"^(  alignas\(\d+\)) (threadgroup .*;)$", r"\1 static \2", source, flags=re.MULTILINE)
    doors = [
        _RUN.format(
            name=name,
            buffers=", ".join(f"({kind})buffers[{place}]" for kind, place in _BUFFER.findall(params)),
        )
        for name, params in _FUNCTION.findall(source)
    ]
    path, library = folder / "kernel.cpp", folder / "kernel.so"
    path.write_text(shared + "".join(doors))
    link("-x", "c++", *_FLAGS, "-I", HEADERS, path, "-o", library)
    return ctypes.CDLL(str(library))
