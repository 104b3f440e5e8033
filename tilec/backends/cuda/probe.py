"""The ceilings of a CUDA device: writes and compiles the probe for it, and runs it once."""

from __future__ import annotations

from pathlib import Path

from tilec.backends.ceilings import Ceilings, kept
from tilec.backends.cuda.codegen.compilers import find_compiler
from tilec.backends.cuda.rates import Product, attribute, device_name, rates
from tilec.portable.graphs import Device

_SOURCE = Path(__file__).parent / "probe.cu"
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
_ACCUMULATORS, _STEPS = 8, 8  # as in the source
_WARPS = 8
#: Element type to the instruction of mma.sync, the depth of its products, C type and constraint of sums.
_MMA = {
    "float16": ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 16, "float", "f"),
    "float32": ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", 8, "float", "f"),
    "int8": ("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", 32, "int", "r"),
    "float8_e4m3fn": ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", 32, "float", "f"),
}
#: The same of wgmma, with what stands behind the descriptors.
_WGMMA = {
    "float16": ("m64n256k16.f32.f16.f16", 16, "float", "f", "p, 1, 1, 0, 0"),
    "float32": ("m64n256k8.f32.tf32.tf32", 8, "float", "f", "p, 1, 1"),
    "int8": ("m64n256k32.s32.s8.s8", 32, "int", "r", "p"),
    "float8_e4m3fn": ("m64n256k32.f32.e4m3.e4m3", 32, "float", "f", "p, 1, 1"),
}
_SUMS = 128  # registers of a thread for 64 x 256


def cuda_ceilings(number: int) -> Ceilings:
    """The ceilings of a device. Needs a CUDA compiler the first time.

    Raises:
        EnvironmentError_: there is no CUDA compiler.
        LaunchError: there is no such device.
    """
    device = Device(number)
    capability = (attribute(device, _MAJOR), attribute(device, _MINOR))
    name = device_name(device)
    source, products = probe(capability)

    def measure() -> Ceilings:
        code = find_compiler(arch(capability)).compile(source, arch(capability)).code
        return Ceilings(name, *rates(number, code, products))

    return kept(name, source, measure)


def arch(capability: tuple[int, int]) -> str:
    """What the probe is compiled for."""
    return f"sm_{capability[0]}{capability[1]}" + ("a" if capability[0] == 9 else "")


def probe(capability: tuple[int, int]) -> tuple[str, list[Product]]:
    """CUDA C++ for a device of a compute capability, and its functions that measure products: wgmma where
    there is one, else mma.sync."""
    text = _SOURCE.read_text()
    if capability[0] == 9:
        return text + "".join(map(_wgmma, _WGMMA)), [_wgmma_product(dtype) for dtype in _WGMMA]
    dtypes = [dtype for dtype in _MMA if dtype != "float8_e4m3fn" or capability >= (8, 9)]
    return text + "".join(map(_mma, dtypes)), [_mma_product(dtype) for dtype in dtypes]


def _mma(dtype: str) -> str:
    instruction, _, number, constraint = _MMA[dtype]
    return f'PRODUCT(product_{dtype}, {number}, "{constraint}", "{instruction}")\n'


def _mma_product(dtype: str) -> Product:
    """A block of `_WARPS` warps, two to a multiprocessor."""
    depth = _MMA[dtype][1]
    operations = 2 * 16 * 8 * depth * _ACCUMULATORS * _WARPS
    return Product(f"product_{dtype}", dtype, 32 * _WARPS, 2, operations)


def _wgmma(dtype: str) -> str:
    """The instruction as a function of the sums and two descriptors, and the kernel around it."""
    shape, _, number, constraint, tail = _WGMMA[dtype]
    sums = ",".join(f"%{at}" for at in range(_SUMS))
    outputs = ", ".join(f'"+{constraint}"(d[{at}])' for at in range(_SUMS))
    text = f"{{{sums}}}, %{_SUMS}, %{_SUMS + 1}, {tail};"
    return (
        f"__device__ __forceinline__ void issue_{dtype}({number} (&d)[{_SUMS}], u64 a, u64 b) {{\n"
        f'  asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, 1, 0;\\n"\n'
        f'    "wgmma.mma_async.sync.aligned.{shape} {text}\\n}}\\n" : {outputs} : "l"(a), "l"(b));\n'
        f"}}\nWGMMA(product_{dtype}, {number}, issue_{dtype})\n"
    )


def _wgmma_product(dtype: str) -> Product:
    """A block of two warpgroups, one to a multiprocessor."""
    return Product(f"product_{dtype}", dtype, 256, 1, 2 * 2 * 64 * 256 * _WGMMA[dtype][1] * _STEPS)
