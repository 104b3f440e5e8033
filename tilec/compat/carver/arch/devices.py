"""What kernel files ask about an architecture: ``CUDA("cuda").smem_cap``, ``is_hopper_arch(arch)``.

Answers come from the driver for the device at hand, and from the table of targets where another one is
named; what the table does not tell is an error there. While a library is built, for several devices, all are
refused."""

from __future__ import annotations

import os
from typing import Any, NoReturn

from tilec.backends.cuda.driver import cuda_devices, device_attribute
from tilec.inprocess.targets import count_multiprocessors, resolve_target
from tilec.language.tiles.device import refuse_in_builds
from tilec.language.values.kernel.places import unsupported
from tilec.language.values.scalars import dtype
from tilec.targets import LINE, REGISTER_FILE, SECTOR, Target

from .capability import device_capability
from .driver import get_device_name, get_shared_memory_per_block

_L2_BYTES, _REGISTERS, _WARP = 38, 12, 10  # CUdevice_attribute
#: Shared memory that a block has without asking for more, of every compute capability (CUDA C++ Programming
#: Guide, "Compute Capabilities").
_SHARED_BYTES = 48 * 1024
#: Operand and sum types of T.gemm on tensor cores -> the first compute capability that has them.
_PRODUCTS = {
    ("float16", "float32"): (7, 0),
    ("float16", "float16"): (7, 0),
    ("bfloat16", "float32"): (8, 0),
    ("float32", "float32"): (8, 0),
    ("tfloat32", "float32"): (8, 0),
    ("float64", "float64"): (8, 0),
    ("int8", "int32"): (8, 0),
    ("uint8", "int32"): (8, 0),
    ("float8_e4m3fn", "float32"): (8, 9),
    ("float8_e5m2", "float32"): (8, 9),
}


class TileDevice:
    """A device that kernels are for; ``target`` is tilec's."""

    platform = ""
    target: Target

    def __getattr__(self, name: str) -> NoReturn:
        """Other things that one may want to know are refused."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise unsupported(
            f"{type(self).__name__}.{name}", remedy="list configs in [kernel.tune], or in configs of autotune"
        )


class CUDA(TileDevice):
    """A GPU by its target, as `tilec.jit` takes it: of "cuda" the device at hand (EnvironmentError_ where
    there is none), of "sm_90a" or "cuda -arch=sm_90a" what the table of targets says.

    ``sm_version`` 90, ``compute_capability`` "90", ``warp_size`` in threads, ``reg_cap`` registers a block,
    ``smem_cap`` bytes of shared memory that every block may have, ``smem_opt_in`` those of a block that asks,
    ``compute_max_core`` multiprocessors, ``l2_cache_size_bytes``, ``name``."""

    platform = "CUDA"
    sm_partition = 4
    #: Bytes of a sector and of a line of the cache.
    transaction_size = (SECTOR, LINE)

    def __init__(self, target: Any = "cuda") -> None:
        refuse_in_builds("CUDA", "choose by the config of each target")
        major, minor = device_capability(target)
        self.target = resolve_target(target)
        self.sm_version = 10 * major + minor
        self.compute_capability = str(self.sm_version)
        gpu = self.target.gpu
        assert gpu is not None
        self.smem_opt_in = gpu.shared_bytes
        self._here = bool(cuda_devices()) and device_capability() == (major, minor)
        self.warp_size = device_attribute(_WARP) if self._here else 32
        self.reg_cap = device_attribute(_REGISTERS) if self._here else REGISTER_FILE
        self.smem_cap = get_shared_memory_per_block() if self._here else _SHARED_BYTES
        self.max_smem_usage = 2 * self.smem_cap

    @property
    def name(self) -> str:
        """What the driver calls the device."""
        return get_device_name() if self._here else self.target.name

    @property
    def compute_max_core(self) -> int:
        """Multiprocessors of the device."""
        return count_multiprocessors() if self._here else self._not_here("the number of multiprocessors")

    @property
    def l2_cache_size_bytes(self) -> int:
        """Bytes of its second-level cache."""
        return device_attribute(_L2_BYTES) if self._here else self._not_here("the size of the cache")

    def _not_here(self, what: str) -> NoReturn:
        raise unsupported(
            f"{what} of {self.target.name}",
            why="it differs between devices of one architecture, and none is here",
            remedy="run it where the device is, or give the number",
        )


class CPU(TileDevice):
    """A CPU by its target; ``compute_max_core`` are the CPUs of this process."""

    platform = "CPU"

    def __init__(self, target: Any = "cpu") -> None:
        refuse_in_builds("CPU", "choose by the config of each target")
        self.target = resolve_target(target)
        self.name = self.target.name
        self.compute_max_core = len(os.sched_getaffinity(0))


def get_arch(target: Any = "cuda") -> TileDevice:
    """The device of a target, as `tilec.jit` takes it."""
    return CPU(target) if resolve_target(target).gpu is None else CUDA(target)


def auto_infer_current_arch() -> TileDevice:
    """The CUDA device at hand, else this CPU."""
    return CUDA("cuda") if cuda_devices() else CPU("cpu")


def is_cuda_arch(arch: TileDevice) -> bool:
    """Whether it is a GPU of NVIDIA's."""
    return isinstance(arch, CUDA)


def is_cpu_arch(arch: TileDevice) -> bool:
    """Whether it is a CPU."""
    return isinstance(arch, CPU)


def is_cdna_arch(arch: TileDevice) -> bool:
    """False: tilec makes no code for AMD GPUs."""
    return False


def is_metal_arch(arch: TileDevice) -> bool:
    """False: tilec makes no code for Metal."""
    return False


def _version(arch: TileDevice) -> int:
    return arch.sm_version if isinstance(arch, CUDA) else 0


def is_volta_arch(arch: TileDevice) -> bool:
    """Compute capability 7.0 to 7.4."""
    return 70 <= _version(arch) < 75


def is_ampere_arch(arch: TileDevice) -> bool:
    """Compute capability 8.0 to 8.8."""
    return 80 <= _version(arch) < 89


def is_ada_arch(arch: TileDevice) -> bool:
    """Compute capability 8.9."""
    return _version(arch) == 89


def is_hopper_arch(arch: TileDevice) -> bool:
    """Compute capability 9.0."""
    return _version(arch) == 90


def is_blackwell_arch(arch: TileDevice) -> bool:
    """Compute capability 10.0 and up."""
    return _version(arch) >= 100


def has_mma_support(arch: TileDevice) -> bool:
    """Whether it has tensor cores."""
    return _version(arch) >= 70


def is_tensorcore_supported_precision(in_dtype: Any, accum_dtype: Any, arch: TileDevice) -> bool:
    """Whether tensor cores multiply ``in_dtype`` with sums of ``accum_dtype``."""
    first = _PRODUCTS.get((str(dtype(in_dtype)), str(dtype(accum_dtype))))
    return first is not None and divmod(_version(arch), 10) >= first
