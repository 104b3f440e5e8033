"""What XLA calls for a kernel: its door for tvm-ffi, on CPUs and on NVIDIA GPUs.

On a GPU a workspace is one more result of the call, so that XLA plans it like any other buffer and a graph
that it makes of the call (a command buffer) keeps it. How large it is has to be known before the device is:
it suffices for every variant that the dims admit."""

from __future__ import annotations

import contextlib
import functools
import operator
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import jax_tvm_ffi
import numpy as np

from .loader import Kernel, LaunchError, Library, device_of_variant, evaluate_size

#: Names that XLA knows already, in all copies of this file in a process, and who may add to them.
_KNOWN: set[str] = jax.__dict__.setdefault("_tilec_targets", set())
_LOCK: threading.Lock = jax.__dict__.setdefault("_tilec_targets_lock", threading.Lock())
#: The device of GPUs, as libraries and JAX name it, and all devices whose code the door runs.
_GPU = "cuda"
DEVICES = {"cpu", _GPU}
#: Of slices of a workspace on a GPU, and of their beginning, as the library has it.
_ALIGN = 256
#: What the library takes at most for the number of multiprocessors, and how sizes name it.
_MOST_SMS, _NUM_SMS = 1024, "_num_sms"
_KEEPS: dict[str, Callable[[int, int], bool]] = {
    "eq": operator.eq,
    "div": lambda value, part: value % part == 0,
    "min": operator.ge,
    "max": operator.le,
}

#: Scalars by name, each with its type and bytes: 1, 1.0 and True are equal in Python, so are 0.0 and -0.0.
Attributes: TypeAlias = tuple[tuple[str, str, bytes], ...]


class Target:
    """Of one kernel; ``entry`` is its function of tvm-ffi, ``order`` how that takes its parameters."""

    def __init__(self, library: Library, kernel: Kernel, entry: Any, order: list[str]) -> None:
        #: What XLA calls it: no other build has the name.
        self.name = f"{library.name}_{library.build_id}_{kernel.name}"
        self._kernel, self._workspace = kernel, Workspace(kernel.metadata["variants"])
        self._chosen = jax.jit(self._by_platform, static_argnames="how")
        with _LOCK:
            if self.name not in _KNOWN:
                self._register(entry, order)
                _KNOWN.add(self.name)

    def _register(self, entry: Any, order: list[str]) -> None:
        """For both platforms whatever code there is: the library's errors say what is missing."""
        jax_tvm_ffi.register_ffi_target(self.name, entry, order)
        jax_tvm_ffi.register_ffi_target(
            self.name,
            entry,
            order,
            platform="gpu",
            allow_cuda_graph=True,
            use_last_output_for_alloc_workspace=self._workspace.is_needed,
        )

    def call(
        self, results: Sequence[Any], attributes: Attributes, dims: Mapping[str, Any]
    ) -> Callable[..., tuple[Any, ...]]:
        """The call as a function of the tensors; ``results`` are shapes and types."""
        self._preload()
        if not self._workspace.is_needed:
            return functools.partial(self._call, results, attributes)
        gpus = local_gpus() if self._workspace.takes_num_sms else ()
        size = self._workspace.size(dims, [gpu.core_count for gpu in gpus])
        return functools.partial(self._chosen, how=(tuple(results), attributes, size))

    def _preload(self) -> None:
        """XLA may capture the first call that it makes, where no code is loaded. Of a GPU that the library
        does not serve the call itself tells, if one is made there."""
        if any(device_of_variant(each) == _GPU for each in self._kernel.metadata["variants"]):
            for gpu in local_gpus():
                with contextlib.suppress(LaunchError):
                    self._kernel.preload(f"{_GPU}:{gpu.local_hardware_id}")

    def _call(self, results: Sequence[Any], attributes: Attributes, *tensors: Any) -> tuple[Any, ...]:
        call = jax.ffi.ffi_call(self.name, tuple(results), vmap_method="sequential")
        scalars = {name: np.frombuffer(data, dtype)[0] for name, dtype, data in attributes}
        return tuple(call(*tensors, **scalars))

    def _by_platform(self, *tensors: Any, how: tuple[tuple[Any, ...], Attributes, int]) -> tuple[Any, ...]:
        """Inside of jit, where the arrays decide on the platform."""
        results, attributes, size = how
        workspace = struct((size,), "uint8")

        def on_gpu(*tensors: Any) -> tuple[Any, ...]:
            return self._call((*results, workspace), attributes, *tensors)[:-1]

        on_cpu = functools.partial(self._call, results, attributes)
        found: tuple[Any, ...] = jax.lax.platform_dependent(*tensors, cpu=on_cpu, **{_GPU: on_gpu})
        return found


class Workspace:
    """What the variants for CUDA among those of a kernel's metadata ask for."""

    def __init__(self, variants: Iterable[Mapping[str, Any]]) -> None:
        self._variants = [each for each in variants if device_of_variant(each) == _GPU and each["workspace"]]

    @property
    def is_needed(self) -> bool:
        """Whether any of them asks for one."""
        return bool(self._variants)

    @property
    def takes_num_sms(self) -> bool:
        """Whether the number of multiprocessors counts."""
        return any(each.get("takes_num_sms") for each in self._variants)

    def size(self, dims: Mapping[str, int], num_sms: Sequence[int] = ()) -> int:
        """Bytes for any variant that these dims admit, and for beginning at a multiple of what slices do, on
        devices with as many multiprocessors; without ``num_sms``, on any device."""
        admitted = [each for each in self._variants if _admits(each["guards"], dims)]
        return _ALIGN + max((_most(each, dims, num_sms) for each in admitted), default=0)


def _admits(guards: Mapping[str, Mapping[str, Any]], dims: Mapping[str, int]) -> bool:
    return all(
        _KEEPS[part](dims[name], value)
        for name, guard in guards.items()
        for part, value in guard.items()
        if part in _KEEPS
    )


def _most(variant: Mapping[str, Any], dims: Mapping[str, int], num_sms: Sequence[int]) -> int:
    """Bytes of the slices of one variant."""
    if not variant.get("takes_num_sms"):
        return _slices(variant, dims)
    counts = set(num_sms) or range(1, _MOST_SMS + 1)
    return max(_slices(variant, {**dims, _NUM_SMS: min(count, _MOST_SMS)}) for count in counts)


def _slices(variant: Mapping[str, Any], values: Mapping[str, int]) -> int:
    return sum(-(-evaluate_size(each["bytes"], values) // _ALIGN) * _ALIGN for each in variant["workspace"])


@functools.cache
def local_gpus() -> tuple[Any, ...]:
    """The NVIDIA GPUs that JAX has in this process."""
    try:
        return tuple(jax.local_devices(backend=_GPU))
    except RuntimeError:  # it has no such platform
        return ()


def attribute(name: str, value: Any) -> tuple[str, str, bytes]:
    """A number as an attribute of XLA's calls, whose width they keep."""
    if isinstance(value, (bool, np.bool_)):
        made: Any = np.bool_(value)
    else:
        made = np.int64(value) if isinstance(value, (int, np.integer)) else np.float64(value)
    return name, made.dtype.str, made.tobytes()


def struct(shape: Sequence[int], dtype: str) -> Any:
    """The shape and the type of a result."""
    make: Any = jax.ShapeDtypeStruct
    return make(shape, jnp.dtype(dtype))
