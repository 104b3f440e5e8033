"""Memory for kernels that read at addresses: pointers that are several tensors, tables of addresses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tilec.errors import UnsupportedError
from tilec.ir.interp.values import cast, is_float, numpy_dtype
from tilec.package.model import evaluate

if TYPE_CHECKING:
    from tilec.ir.nodes import Kernel
    from tilec.portable.devices.base import Device

#: Of an axis whose extent only a run of the kernel tells.
_UNKNOWN_EXTENT = 4096
#: All blocks of a call together; addresses beyond share blocks.
_MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class Pointed:
    """A tensor at an address: ``source`` is the parameter that holds the address, a pointer or a table.
    ``extents`` are texts over dims, None where they are not known before the kernel runs."""

    source: str
    dtype: str
    extents: tuple[str | None, ...]
    is_strided: bool

    def bytes(self, dims: Mapping[str, int]) -> int:
        """How many it takes."""
        size = numpy_dtype(self.dtype).itemsize
        for text in self.extents:
            size *= _UNKNOWN_EXTENT if text is None else max(evaluate(text, dims), 1)
        return size * (2 if self.is_strided else 1)


@lru_cache(maxsize=64)
def pointed(ir_text: str) -> tuple[Pointed, ...]:
    """The tensors at addresses of a kernel. Raises UnsupportedError where it writes one, since nothing looks
    at what is there afterwards, and for addresses that are computed."""
    from tilec.ir.nodes import Alloc, walk
    from tilec.ir.text.parser import parse_kernel

    if '"global.address"' not in ir_text:
        return ()
    kernel = parse_kernel(ir_text)
    found = [stmt for stmt in walk(kernel.body) if isinstance(stmt, Alloc)]
    return tuple(_pointed(kernel, stmt) for stmt in found if stmt.buffer.scope() == "global.address")


def _pointed(kernel: Kernel, stmt: Any) -> Pointed:
    from tvm.ir import TensorLoad

    from tilec.ir.nodes import TensorParam, walk
    from tilec.ir.text.expr_printer import format_expr
    from tilec.language.values.kernel.access import written_by
    from tilec.sizes import names_in

    buffer, address = stmt.buffer, stmt.init
    if any(each.same_as(buffer) for inner in walk(kernel.body) for each in written_by(inner)):
        raise UnsupportedError(
            f"verifying {buffer.name}, which the kernel writes at an address",
            remedy="compare it where the kernel is called",
        )
    held = address.source if isinstance(address, TensorLoad) else address
    owners = {
        param.buffer if isinstance(param, TensorParam) else param.var: param.name for param in kernel.params
    }
    if held not in owners:
        raise UnsupportedError(
            f"verifying {buffer.name}, whose address is computed", remedy="give inputs in the manifest"
        )
    known = {dim.name for dim in kernel.dims}
    texts = [format_expr(extent) for extent in buffer.shape]
    extents = tuple(text if set(names_in(text)) <= known else None for text in texts)
    return Pointed(owners[held], str(buffer.dtype), extents, len(buffer.strides) > 0)


class Blocks:
    """Memory that stays where it is as long as this object. ``device``: one that may read it, too."""

    def __init__(self, device: Device | None = None) -> None:
        self._device = device
        self._held: list[Any] = []

    def fill(
        self,
        ir_text: str,
        values: dict[str, Any],
        dims: Mapping[str, int],
        rng: np.random.Generator,
    ) -> None:
        """Puts the addresses of new blocks into ``values`` where the kernel takes addresses."""
        wanted: dict[str, Pointed] = {}
        for tensor in pointed(ir_text):
            held = wanted.get(tensor.source)
            if held is None or held.bytes(dims) < tensor.bytes(dims):
                wanted[tensor.source] = tensor
        for name, tensor in wanted.items():
            shape = np.shape(values[name])
            size = tensor.bytes(dims)
            count = max(1, min(int(np.prod(shape)), _MOST_BYTES // size))
            blocks = [self._block(tensor.dtype, size, rng) for _ in range(count)]
            numbers = np.resize(np.asarray(blocks, np.int64), shape)
            values[name] = numbers if shape else int(blocks[0])

    def _block(self, dtype: str, size: int, rng: np.random.Generator) -> int:
        kind = numpy_dtype(dtype)
        count = size // kind.itemsize
        random = rng.standard_normal(count, np.float32) if is_float(kind) else rng.integers(0, 4, count)
        filled = np.ascontiguousarray(cast(random, kind))
        if self._device is None:
            self._held.append(filled)
            return int(filled.ctypes.data)
        memory = self._device.shared_memory(size)
        memory.write(bytearray(filled.tobytes()))
        self._held.append(memory)
        return memory.address
