"""Loads a library built by tilec and calls its kernels; imports the standard library alone.

This is one file on purpose: a machine that only runs libraries needs it and the library, nothing else.

    lib = load("dist/llm_kernels")        # or its file
    lib.matmul(a, b, c)                   # NumPy, torch, anything with DLPack; outputs in place
    c = lib.matmul(a, b)                  # outputs left out are allocated like the inputs and returned
    lib.kernels["matmul"].select(M=17)    # which variant would serve, without running it

Calls may come from any thread. Errors are `LibraryError` (the file), `LaunchError` (the call; a ValueError)
and TypeError (the wrong number or kind of Python arguments)."""

from __future__ import annotations

import ast
import contextlib
import ctypes
import functools
import hashlib
import inspect
import itertools
import json
import keyword
import mmap
import numbers
import operator
import os
import platform
import struct
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

ABI_VERSION = 1
CPU, CUDA, METAL, ROCM = 1, 2, 8, 10
_CPU_LIKE = (1, 3)  # kDLCPU and pinned host memory
_DEFAULT_STREAM = 1  # of CUDA, as __dlpack__ counts
_TORCH_KINDS = {"cpu": CPU, "cuda": CUDA}
_MOST_WORKERS = 1024  # as the library
_IN_ORDER, _BY_NAME = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY

# ---- errors ----


class LibraryError(Exception):
    """The file is no tilec library, is damaged, or is for another machine."""


class LaunchError(ValueError):
    """A call was refused or failed. ``status`` is the tilec_status, ``name`` its name."""

    def __init__(self, status: int, name: str, message: str) -> None:
        super().__init__(f"{message} [{name}]")
        self.status = status
        self.name = name


# ---- the C structs of tilec.h and dlpack.h ----


class _Device(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _ArgValue(ctypes.Union):
    _fields_ = [
        ("i", ctypes.c_int64),
        ("f", ctypes.c_double),
        ("ptr", ctypes.c_void_p),
        ("tensor", ctypes.POINTER(_Tensor)),
    ]


class _Arg(ctypes.Structure):
    _fields_ = [("tag", ctypes.c_int32), ("reserved0", ctypes.c_uint32), ("v", _ArgValue)]


class _Exec(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("device", _Device),
        ("stream", ctypes.c_void_p),
        ("workspace", ctypes.c_void_p),
        ("workspace_size", ctypes.c_size_t),
        ("parallel_for", ctypes.c_void_p),
        ("pool", ctypes.c_void_p),
        ("variant", ctypes.c_void_p),
        ("num_workers", ctypes.c_uint32),
        ("reserved0", ctypes.c_uint32),
    ]


class _Variant(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("id", ctypes.c_uint32), ("arch", ctypes.c_char_p)]


class _KernelInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("num_params", ctypes.c_uint32),
        ("num_dims", ctypes.c_uint32),
        ("num_variants", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
        ("doc", ctypes.c_char_p),
        ("params", ctypes.c_void_p),
        ("dim_names", ctypes.c_void_p),
        ("variants", ctypes.POINTER(ctypes.c_void_p)),
    ]


_dims_p = ctypes.POINTER(ctypes.c_int64)
_align_p = ctypes.POINTER(ctypes.c_uint32)
_status = ctypes.c_int32


class _Library(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("abi_version", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
        ("version", ctypes.c_char_p),
        ("build_id", ctypes.c_char_p),
        ("metadata_json", ctypes.c_void_p),
        ("metadata_json_size", ctypes.c_size_t),
        ("num_kernels", ctypes.c_size_t),
        ("kernels", ctypes.c_void_p),
        ("find", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p)),
        ("preload", ctypes.CFUNCTYPE(_status, ctypes.c_void_p, _Device)),
        (
            "select",
            ctypes.CFUNCTYPE(
                _status, ctypes.c_void_p, _Device, _dims_p, _align_p, ctypes.POINTER(ctypes.c_void_p)
            ),
        ),
        (
            "explain",
            ctypes.CFUNCTYPE(
                ctypes.c_size_t, ctypes.c_void_p, _Device, _dims_p, _align_p, ctypes.c_char_p, ctypes.c_size_t
            ),
        ),
        (
            "workspace_size",
            ctypes.CFUNCTYPE(
                _status,
                ctypes.c_void_p,
                ctypes.c_void_p,
                ctypes.POINTER(_Exec),
                _dims_p,
                ctypes.POINTER(ctypes.c_size_t),
            ),
        ),
        (
            "launch",
            ctypes.CFUNCTYPE(
                _status, ctypes.c_void_p, ctypes.POINTER(_Exec), ctypes.POINTER(_Arg), ctypes.c_size_t
            ),
        ),
        ("last_error", ctypes.CFUNCTYPE(ctypes.c_char_p)),
        ("status_name", ctypes.CFUNCTYPE(ctypes.c_char_p, _status)),
        ("set_log", ctypes.c_void_p),
    ]


class _ManagedTensor(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("manager_ctx", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _ManagedTensorVersioned(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint32 * 2),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


# ---- dtypes: (DLPack code, bits) ----

DTYPES = {
    "bool": (6, 8),
    **{f"int{bits}": (0, bits) for bits in (4, 8, 16, 32, 64)},
    **{f"uint{bits}": (1, bits) for bits in (4, 8, 16, 32, 64)},
    **{f"float{bits}": (2, bits) for bits in (16, 32, 64)},
    "bfloat16": (4, 16),
    "tfloat32": (2, 32),
    "float8_e4m3fn": (10, 8),
    "float8_e5m2": (12, 8),
    "float8_e8m0fnu": (14, 8),
    "float4_e2m1fn": (17, 4),
}
#: Types that arrays may have and no kernel takes: the library says so, and what it expects.
_FOREIGN_DTYPES = {
    "float8_e3m4": (7, 8),
    "float8_e4m3": (8, 8),
    "float8_e4m3b11fnuz": (9, 8),
    "float8_e4m3fnuz": (11, 8),
    "float8_e5m2fnuz": (13, 8),
    "float6_e2m3fn": (15, 6),
    "float6_e3m2fn": (16, 6),
    "complex64": (5, 64),
    "complex128": (5, 128),
}
_FLOATS = ("float", "bfloat", "tfloat")
#: NumPy's type strings, little endian.
_TYPESTRS = {
    "|b1": DTYPES["bool"],
    "|i1": DTYPES["int8"],
    "|u1": DTYPES["uint8"],
    **{
        f"<{kind}{bits // 8}": (code, bits)
        for kind, code in (("i", 0), ("u", 1), ("f", 2))
        for bits in (16, 32, 64)
    },
}

# ---- arguments ----


class _View(NamedTuple):
    """A borrowed tensor: what a DLTensor needs, and ``owner`` to keep the memory alive. ``offset``: bytes
    from ``address`` on, where that is an object of a driver's (Metal)."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None  # elements; None = contiguous
    dtype: tuple[int, int]
    device: tuple[int, int]
    owner: object
    readonly: bool = False
    lanes: int = 1
    offset: int = 0

    def to_c(self) -> _Tensor:
        rank = len(self.shape)
        kind = ctypes.c_int64 * max(rank, 1)
        strides = None if self.strides is None else kind(*self.strides)
        return _Tensor(
            self.address,
            _Device(*self.device),
            rank,
            _DataType(*self.dtype, self.lanes),
            kind(*self.shape),
            strides,
            self.offset,
        )


def _view(value: object, name: str, stream: int = 0) -> _View:
    """``value`` as a tensor that a ``stream`` may use; TypeError if it is none."""
    interface = getattr(value, "__array_interface__", None)
    if interface is not None:
        return _numpy_view(value, interface, name)
    if hasattr(value, "data_ptr") and hasattr(value, "stride"):
        return _torch_view(value, name)
    if hasattr(value, "__dlpack__"):
        return _dlpack_view(value, name, stream)
    try:
        memory = memoryview(value)  # type: ignore[arg-type]
    except TypeError:
        kinds = "NumPy, torch, anything with __dlpack__, or a buffer such as array.array"
        raise TypeError(f"{name} must be an array ({kinds}), got {type(value).__name__}") from None
    return _buffer_view(memory, name)


class _Buffer(ctypes.Structure):
    """Py_buffer of the stable ABI."""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        *((field, ctypes.c_void_p) for field in ("format", "shape", "strides", "suboffsets", "internal")),
    ]


_STRIDED_BUFFER = 0x18  # PyBUF_STRIDES
_get_buffer, _release_buffer = ctypes.pythonapi.PyObject_GetBuffer, ctypes.pythonapi.PyBuffer_Release
_get_buffer.argtypes, _release_buffer.argtypes = (
    [ctypes.py_object, ctypes.c_void_p, ctypes.c_int],
    [ctypes.c_void_p],
)
_release_buffer.restype = None
#: Letters of the struct module to the kind of DLPack; their sizes are those of this machine.
_FORMATS = {"?": 6, **dict.fromkeys("bhilqn", 0), **dict.fromkeys("BHILQN", 1), **dict.fromkeys("efd", 2)}


def _buffer_view(value: memoryview, name: str) -> _View:
    """What the standard library calls a buffer: array.array, ctypes arrays, mmap, bytearray."""
    code = _FORMATS.get(value.format.lstrip("@=<" if sys.byteorder == "little" else "@=>"))
    if code is None:
        raise LaunchError(
            2, "TILEC_ERR_DTYPE", f"{name} has elements of format {value.format}, which no kernel takes"
        )
    elements = _in_elements(value.strides or (), value.itemsize, name)
    held = _Buffer()
    _get_buffer(value, ctypes.byref(held), _STRIDED_BUFFER)
    address = held.buf or 0
    _release_buffer(ctypes.byref(held))  # ``value`` goes on holding the memory
    return _View(
        address,
        tuple(value.shape or ()),
        elements,
        (code, 8 * value.itemsize),
        (CPU, 0),
        value,
        value.readonly,
    )


def _numpy_view(value: object, interface: Mapping[str, Any], name: str) -> _View:
    address, readonly = interface["data"]
    dtype = _TYPESTRS.get(interface["typestr"]) or _named_dtype(value, name)
    size = max(dtype[1] // 8, 1)
    strides = interface["strides"]
    elements = None if strides is None else _in_elements(strides, size, name)
    return _View(address, tuple(interface["shape"]), elements, dtype, (CPU, 0), value, readonly)


def _in_elements(strides: Sequence[int], size: int, name: str) -> tuple[int, ...]:
    """Strides in bytes as strides in elements of ``size`` bytes."""
    if any(stride % size for stride in strides):
        raise LaunchError(4, "TILEC_ERR_LAYOUT", f"{name} has strides that are no multiples of its element")
    return tuple(stride // size for stride in strides)


def _named_dtype(value: Any, name: str) -> tuple[int, int]:
    """For types without a type string of their own (those of ml_dtypes and torch)."""
    dtype = str(getattr(value, "dtype", "its dtype")).rpartition(".")[2]
    if dtype in DTYPES or dtype in _FOREIGN_DTYPES:
        return DTYPES.get(dtype) or _FOREIGN_DTYPES[dtype]
    raise LaunchError(2, "TILEC_ERR_DTYPE", f"{name} has the element type {dtype}, which no kernel takes")


def _torch_view(value: Any, name: str) -> _View:
    _refuse_without_memory(value, name)
    _refuse_negated(value, name)
    kind, dtype = _torch_kind(value.device.type), _named_dtype(value, name)
    device = _dlpack_device(value) if kind is None else (kind, 0 if kind == CPU else value.device.index or 0)
    address, offset = value.data_ptr(), 0
    if device[0] == METAL:
        address, offset = value.untyped_storage().data_ptr(), value.storage_offset() * value.element_size()
    shape, strides = tuple(value.shape), tuple(value.stride())
    return _View(address, shape, strides, dtype, device, value, offset=offset)


def lacks_memory(value: Any) -> bool:
    """Whether a tensor of torch has no elements that strides lead to: on "meta", and where it is sparse."""
    layout = str(getattr(value, "layout", ""))
    return layout.startswith("torch.") and (value.device.type == "meta" or layout != "torch.strided")


def _refuse_without_memory(value: Any, name: str) -> None:
    if lacks_memory(value):
        kind = f"{value.layout} on {value.device.type}"
        raise TypeError(f"{name} has no elements in memory ({kind}); pass a dense tensor")


def is_negated(value: Any) -> bool:
    """Whether a value is a view of torch whose memory holds the opposite of what it shows: of a conjugate's
    imaginary part."""
    asked = getattr(value, "is_neg", None)
    return asked is not None and bool(asked())


def _refuse_negated(value: Any, name: str) -> None:
    if is_negated(value):
        problem = f"{name} is a view whose signs torch has yet to turn; pass {name}.resolve_neg()"
        raise LaunchError(4, "TILEC_ERR_LAYOUT", problem)


def _torch_kind(name: str) -> int | None:
    """The kind of torch's devices of a name: builds for ROCm call theirs "cuda", too."""
    kind = _TORCH_KINDS.get(name)
    version = getattr(sys.modules.get("torch"), "version", None)
    return ROCM if kind == CUDA and getattr(version, "hip", None) else kind


def _dlpack_device(value: Any) -> tuple[int, int]:
    """Where an array says that it is; the CPU if it says nothing."""
    if not hasattr(value, "__dlpack_device__"):
        return CPU, 0
    kind, number = value.__dlpack_device__()
    return int(kind), int(number)


_DLPACK_READ_ONLY = 1
_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype, _get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]


def _dlpack_view(value: Any, name: str, stream: int) -> _View:
    """The capsule is only borrowed: it stays unconsumed and frees its tensor when it goes. Its producer makes
    ``stream`` wait for what still writes the tensor."""
    kind = _KINDS.get(_dlpack_device(value)[0])
    options = {} if kind is None else kind.producer_options(stream)
    try:
        capsule = value.__dlpack__(max_version=(1, 0), **options)
    except TypeError:  # an older producer
        capsule = value.__dlpack__(**options)
    if _is_valid(capsule, b"dltensor_versioned"):
        versioned = ctypes.cast(
            _get_pointer(capsule, b"dltensor_versioned"), ctypes.POINTER(_ManagedTensorVersioned)
        ).contents
        return _borrowed_view(versioned.tensor, capsule, bool(versioned.flags & _DLPACK_READ_ONLY))
    if _is_valid(capsule, b"dltensor"):
        managed = ctypes.cast(_get_pointer(capsule, b"dltensor"), ctypes.POINTER(_ManagedTensor)).contents
        return _borrowed_view(managed.tensor, capsule, False)
    raise TypeError(f"{name} gives a DLPack capsule of an unknown kind")


def _borrowed_view(tensor: _Tensor, capsule: object, readonly: bool) -> _View:
    rank = tensor.ndim
    strides = tuple(tensor.strides[:rank]) if tensor.strides else None
    dtype = (tensor.dtype.code, tensor.dtype.bits)
    device = (tensor.device.device_type, tensor.device.device_id)
    address, offset = tensor.data or 0, tensor.byte_offset
    if device[0] != METAL:
        address, offset = address + offset, 0
    shape, lanes = tuple(tensor.shape[:rank]), tensor.dtype.lanes
    return _View(address, shape, strides, dtype, device, capsule, readonly, lanes, offset)


# ---- sizes: the texts in the metadata, which anybody may have written; none is run as Python ----

_BINARY: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type, Callable[[int, int], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_EXTREMA: dict[str, Callable[[int, int], int]] = {"min": min, "max": max}
_SIZE_NODES = (
    *(ast.Constant, ast.Name, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Call),
    *(*_BINARY, *_COMPARE, ast.USub, ast.Not, ast.And, ast.Or, ast.Load),
)
_LONGEST_SIZE = 20_000


def evaluate_size(text: str, values: Mapping[str, int]) -> int:
    """An extent such as "K // 2" for given dims. Raises LibraryError for what is no size, or has no value."""
    if text in values:
        return values[text]
    try:
        value = _walk(_parsed(text), values)
        return int(value) if isinstance(value, bool) else value
    except (ArithmeticError, RecursionError) as error:
        raise LibraryError(f"the library's metadata has the size {text}, without a value: {error}") from None


@functools.lru_cache(maxsize=4096)
def _parsed(text: str) -> ast.expr:
    """The tree of a size; LibraryError for what is none."""
    try:
        if len(text) > _LONGEST_SIZE:
            raise ValueError("it is too long")
        tree = ast.parse(text.strip(), mode="eval").body
        wrong = next((node for node in ast.walk(tree) if not _may_be_in_size(node)), None)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        shown = text if len(text) < 80 else f"{text[:80]}..."
        raise LibraryError(f"the library's metadata has the size {shown!r}, which is none: {error}") from None
    if wrong is not None:
        raise _no_size(tree)
    return tree


def _may_be_in_size(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in (*_EXTREMA, "select") and not node.keywords
    return isinstance(node, _SIZE_NODES)


def _check_sizes(params: Sequence[Mapping[str, Any]]) -> None:
    """Raises LibraryError for an extent or a stride that is no size."""
    texts = {text for param in params for text in (*param["extents"], *(param["strides"] or ()))}
    for text in texts:
        if not text.isidentifier():
            _parsed(text)


def _walk(node: ast.expr, values: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant):
        return node.value  # type: ignore[return-value]
    if isinstance(node, ast.Name) and node.id in values:
        return values[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return _in_64_bits(_BINARY[type(node.op)](_walk(node.left, values), _walk(node.right, values)))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _in_64_bits(-_walk(node.operand, values))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return not _walk(node.operand, values)
    if isinstance(node, ast.BoolOp):
        parts = (_walk(part, values) for part in node.values)
        return all(parts) if isinstance(node.op, ast.And) else any(parts)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARE:
        left, right = _walk(node.left, values), _walk(node.comparators[0], values)
        return _COMPARE[type(node.ops[0])](left, right)
    if isinstance(node, ast.Call):
        return _walk_call(node, node.func.id, values)  # type: ignore[attr-defined]
    raise _no_size(node)


def _walk_call(node: ast.Call, function: str, values: Mapping[str, int]) -> int:
    if function in _EXTREMA and len(node.args) == 2:
        return _extreme(function, *(_walk(part, values) for part in node.args))
    if function == "select" and len(node.args) == 3:
        condition, yes, no = node.args
        return _walk(yes if _walk(condition, values) else no, values)
    raise _no_size(node)


def _extreme(function: str, left: int, right: int) -> int:
    """min or max. That of symbols of torch is one, where comparing them would decide which is less."""
    for one, other in ((left, right), (right, left)):
        if not isinstance(one, int):
            found: int = getattr(one, f"__sym_{function}__")(other)
            return found
    return _EXTREMA[function](left, right)


def _in_64_bits(value: int) -> int:
    """As the library computes: what does not fit is an error there too. Symbols of torch are no integers."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise OverflowError("it does not fit 64 bits")
    return value


def _no_size(node: ast.expr) -> LibraryError:
    return LibraryError(
        f"the library's metadata has a size that this loader cannot compute: {ast.unparse(node)}"
    )


# ---- the library ----


@dataclass(frozen=True)
class Variant:
    """One variant: its ``id``, ``target`` ("x86-64-v4"), ``guards`` by dim in the manifest's spelling,
    ``config``."""

    id: int
    target: str
    guards: Mapping[str, str]
    config: Mapping[str, object]


class Kernel:
    """One kernel of a loaded library; calling it runs it.

    Positional arguments are the parameters in order; keywords name parameters (or dims, where no shape shows
    them). Outputs and scalars with defaults may be left out."""

    def __init__(self, library: Library, metadata: Mapping[str, Any]) -> None:
        self._library = library
        self._handle = library._table.find(metadata["name"].encode())
        self.metadata = metadata
        self.name: str = metadata["name"]
        self.doc: str = metadata["doc"]
        self._params: Sequence[Mapping[str, Any]] = metadata["params"]
        _check_sizes(self._params)
        self._dims: Sequence[Mapping[str, Any]] = metadata["dims"]
        #: One text per parameter: "A: float32[M, K]", "alpha: float32".
        self.signature: tuple[str, ...] = tuple(_param_text(param) for param in self._params)
        self._names = tuple(param["name"] for param in self._params)
        self._inputs = tuple(param["name"] for param in self._params if not param["output"])
        self._tensors = frozenset(param["name"] for param in self._params if param["kind"] == "tensor")
        self._pointers = frozenset(param["name"] for param in self._params if param.get("pointer"))
        self._binds = {dim["name"]: dim["binds"] for dim in self._dims}
        #: Dims must be known before a launch with a workspace, and where the library cannot read them.
        self._wants_dims = bool(self._pointers) or not all(self._binds.values())
        self._workspace = any(variant["workspace"] for variant in metadata["variants"])
        self._aligned = any(variant["align"] for variant in metadata["variants"])
        #: Numbers that shapes depend on; the other scalars of a call that is kept may change.
        self._sizes = self._binds.keys() | {
            self._params[bind["param"]]["name"]
            for dim in self._dims
            for bind in dim["binds"]
            if bind["source"] == "scalar"
        }
        self._kept = _KeptCalls()
        #: Whether a workspace stays for the next call of its thread.
        self.keeps_workspace = True
        self._form = functools.lru_cache(maxsize=64)(self._form_of)
        #: What outputs are allocated like where no argument is an array; None for NumPy.
        self.like: object = None
        #: Of this very kernel, for `help` and editors.
        self.__doc__ = self.doc or type(self).__doc__
        self.__signature__ = inspect.Signature(tuple(_call_parameters(self._params, self._dims)))

    def __repr__(self) -> str:
        return f"<kernel {self.name}({', '.join(self.signature)})>"

    @property
    def variants(self) -> tuple[Variant, ...]:
        """The variants in dispatch order."""
        return tuple(_variant(each) for each in self.metadata["variants"])

    def select(self, device: str = "cpu", **dims: int) -> Variant:
        """The variant that would serve these dims. Raises LaunchError when none would."""
        found = self._select(_parse_device(device), self._dim_array(dims))
        number = ctypes.cast(found, ctypes.POINTER(_Variant)).contents.id
        return next(variant for variant in self.variants if variant.id == number)

    def explain(self, device: str = "cpu", **dims: int) -> str:
        """One line per variant in dispatch order: taken, or why not."""
        function, values = self._library._table.explain, self._dim_array(dims)
        target = _parse_device(device)
        size = function(self._handle, target, values, None, None, 0)
        text = ctypes.create_string_buffer(size + 1)
        function(self._handle, target, values, None, text, size + 1)
        return text.value.decode()

    def preload(self, device: str = "cpu") -> None:
        """Makes the first call on this thread as cheap as the later ones."""
        self._library._check(self._library._table.preload(self._handle, _parse_device(device)))

    def __call__(
        self,
        *args: object,
        serial: bool = False,
        num_workers: int = 0,
        variant: int | None = None,
        stream: int | None = None,
        **named: object,
    ) -> Any:
        """Runs the kernel and returns the outputs that were left out: None, one, or a tuple. ``serial``: on
        the calling thread alone; ``num_workers``: threads to use, 0 for all; ``variant``: the id of the one
        to run, which is refused where its guards or this machine do not admit it; ``stream``: a CUstream, by
        default the current one of torch or CuPy where their arrays are given, else CUDA's default stream."""
        seen = self._seen(args, named, serial, num_workers, variant)
        call = None if seen is None else self._kept.take(seen.key)
        if call is None or seen is None:
            call, made = self._prepared(args, named, serial, num_workers, variant, stream, False)
            call()
        else:
            made = self._again(call, seen, stream)
        if seen is not None:
            self._kept.give(seen.key, call)
        return None if not made else made[0] if len(made) == 1 else tuple(made)

    def prepare(
        self,
        *args: object,
        serial: bool = False,
        num_workers: int = 0,
        variant: int | None = None,
        stream: int | None = None,
        **named: object,
    ) -> Callable[[], None]:
        """The same call with its arguments looked at once: a function that runs the kernel on these arrays
        each time. It keeps the arrays alive, owns its workspace, and may be called by one thread at a time.
        Outputs have to be given."""
        call, made = self._prepared(args, named, serial, num_workers, variant, stream, True)
        if made:
            raise TypeError(f"{self.name}: outputs cannot be left out of a call that is prepared")
        return call

    def _prepared(
        self,
        args: Sequence[object],
        named: dict[str, Any],
        serial: bool,
        num_workers: int,
        variant: int | None,
        stream: int | None,
        own_workspace: bool,
    ) -> tuple[_Call, list[Any]]:
        """What launches, and the outputs that were left out."""
        if not 0 <= num_workers <= _MOST_WORKERS:
            text = f"{self.name}: num_workers = {num_workers}; it is a number of threads, 0 for all of them"
            raise LaunchError(1, "TILEC_ERR_ARGUMENT", text)
        run = _Exec(flags=int(serial), num_workers=num_workers, variant=self._variant_handle(variant))
        dims_given = {dim: named.pop(dim) for dim in self._binds if dim in named and dim not in self._names}
        values = self._assign(args, named)
        run.stream = on = _current_stream(values.values()) if stream is None else stream
        tensors = self._arrays(values) if self._pointers else self._tensors
        views = {name: _view(value, name, on) for name, value in values.items() if name in tensors}
        missing = [param for param in self._params if param["name"] not in values]
        wants_dims = self._workspace or self._wants_dims or missing or dims_given
        dims = self._bind(values, views, dims_given) if wants_dims else {}
        like = next((values[name] for name in views), self.like)
        if self._pointers:
            self._follow(values, views, dims)
        makers = [
            _maker(like, [evaluate_size(text, dims) for text in each["extents"]], each["dtype"])
            for each in missing
        ]
        made = _outputs(makers, (like,), stream)
        for param, array in zip(missing, made, strict=True):
            views[param["name"]] = _view(array, param["name"], on)
        call = self._filled(values, views, dims, run, own_workspace)
        call.makers = makers
        return call, made

    # ---- calls that are kept ----

    def _form_of(self, count: int, *named: str) -> tuple[tuple[str, str], ...]:
        """Name and role of every argument of calls with so many positional ones; none where no such call is
        kept: addresses may be of any device, and outputs need an array to be made like."""
        names = (*self._positional(count, named)[:count], *named)
        arrays = self._tensors.intersection(names)
        if self._pointers or not arrays:
            return ()
        return tuple(
            (name, "array" if name in arrays else "size" if name in self._sizes else "scalar")
            for name in names
        )

    def _seen(
        self,
        args: Sequence[object],
        named: Mapping[str, object],
        serial: bool,
        num_workers: int,
        variant: int | None,
    ) -> _Seen | None:
        """The arguments by what decides how their call goes; None where that has to be looked at anew."""
        form, values = self._form(len(args), *named), (*args, *named.values())
        plain = variant is None and type(serial) is bool and type(num_workers) is int
        if not plain or len(form) != len(values):
            return None
        facts: list[object] = [serial, num_workers, len(args), *named]
        addresses: list[int] = []
        scalars: list[tuple[str, object]] = []
        for (name, role), value in zip(form, values, strict=True):
            if role == "scalar":
                scalars.append((name, value))
            elif role == "size" and type(value) is int:
                facts.append(value)
            else:
                see = _seeing(type(value)) if role == "array" else _unseen  # type: ignore[arg-type]
                found = see(value)
                if found is None:
                    return None
                facts.append(found[0])
                addresses.append(found[1])
        return _Seen(tuple(facts), values, addresses, scalars)

    def _again(self, call: _Call, seen: _Seen, stream: int | None) -> list[Any]:
        """Makes a call that is kept with other arrays and scalars; returns the outputs that were left out."""
        made, run = _outputs(call.makers, seen.values, stream), call.run
        addresses = (*seen.addresses, *map(_address, made))
        for tensor, address in zip(call.slots, addresses, strict=True):
            tensor.data = address
        for name, value in seen.scalars:
            _fill_scalar(*call.scalars[name], value, self.name)
        if stream is None:
            stream = 0 if call.is_on_host else _current_stream(seen.values)
        run.stream, run.variant = stream, None
        _memory = self._add_workspace(run, call.device, call.dims, call.args, False)
        call()
        return made

    # ---- addresses ----

    def _arrays(self, values: Mapping[str, object]) -> frozenset[str]:
        """The arguments that bring their own shape: pointers may be arrays or addresses."""
        given = {
            name for name in self._pointers & values.keys() if not isinstance(values[name], numbers.Integral)
        }
        return (self._tensors - self._pointers) | given

    def _follow(self, values: dict[str, Any], views: dict[str, _View], dims: Mapping[str, int]) -> None:
        """Makes tensors of the shapes that the kernel names of all pointers, and integers of the others."""
        device = self._pointed_device(values, views)
        for param in self._params:
            name = param["name"]
            if name not in self._pointers or name not in values:
                continue
            given = views.pop(name, None)
            address = int(values[name]) if given is None else given.address
            if param["kind"] == "scalar":
                values[name] = address
                continue
            shape, strides = (
                None if texts is None else tuple(evaluate_size(text, dims) for text in texts)
                for texts in (param["extents"], param["strides"])
            )
            readonly = given is not None and given.readonly
            dtype = DTYPES[param["dtype"]]
            views[name] = _View(address, shape or (), strides, dtype, device, values[name], readonly)

    def _pointed_device(self, values: Mapping[str, Any], views: Mapping[str, _View]) -> tuple[int, int]:
        """The device of the first array; without one, that of the first address."""
        if views:
            return next(iter(views.values())).device
        address = next((int(values[name]) for name in self._names if name in self._pointers), 0)
        for device in dict.fromkeys(map(device_of_variant, self.metadata["variants"])):
            kind = _kind_named(device)
            number = None if kind is None else kind.owner(address)
            if kind is not None and number is not None:
                return kind.number, number
        return CPU, 0

    # ---- arguments ----

    def _assign(self, args: Sequence[object], named: Mapping[str, object]) -> dict[str, object]:
        """Parameter names to values."""
        names = self._positional(len(args), named)
        if len(args) > len(names):
            takes = ", ".join(self.signature)
            raise TypeError(f"{self.name} takes {len(names)} arguments, got {len(args)}: {takes}")
        values = dict(zip(names, args, strict=False))
        for name, value in named.items():
            if name in values or name not in self._names:
                problem = "was given twice" if name in values else "is no parameter"
                raise TypeError(f"{self.name}: {name!r} {problem}; it takes {', '.join(self.signature)}")
            values[name] = value
        return self._with_defaults(values) if len(values) < len(self._names) else values

    def _positional(self, count: int, named: Iterable[str]) -> tuple[str, ...]:
        """What so many positional arguments are: all parameters in order, or all but the outputs where none
        of those is named."""
        outputs = set(self._names) - set(self._inputs)
        return self._names if count > len(self._inputs) or outputs & set(named) else self._inputs

    def _with_defaults(self, values: dict[str, object]) -> dict[str, object]:
        for param in self._params:
            if param["name"] in values or param["output"]:
                continue
            if param["default"] is None:
                takes = ", ".join(self.signature)
                raise TypeError(f"{self.name}: argument {param['name']!r} is missing; it takes {takes}")
            values[param["name"]] = default_of(param)
        return values

    # ---- dims ----

    def _bind(
        self, values: Mapping[str, object], views: Mapping[str, _View], given: Mapping[str, object]
    ) -> dict[str, int]:
        """Every dim, from the arguments that are there. A dim that only outputs show must be given."""
        return {
            name: _as_int(given[name]) if name in given else self._bind_dim(name, values, views)
            for name in self._binds
        }

    def _bind_dim(self, name: str, values: Mapping[str, object], views: Mapping[str, _View]) -> int:
        for bind in self._binds[name]:
            value = self._bound_value(bind, values, views)
            if value is not None:
                return value
        self._require_ranks(views)
        raise TypeError(f"{self.name}: dim {name} is in no argument's shape; pass it by name ({name}=...)")

    def _require_ranks(self, views: Mapping[str, _View]) -> None:
        """Raises LaunchError for the first array with too few or too many axes."""
        for param in self._params:
            name, view = param["name"], views.get(param["name"])
            if view is not None and len(view.shape) != len(param["extents"]):
                axes = "1 axis" if len(view.shape) == 1 else f"{len(view.shape)} axes"
                text = f"{self.name}: {name} has {axes}, expected {len(param['extents'])}"
                raise LaunchError(3, "TILEC_ERR_SHAPE", f"{text} ({_param_text(param)})")

    def _bound_value(
        self, bind: Mapping[str, Any], values: Mapping[str, object], views: Mapping[str, _View]
    ) -> int | None:
        """The dim that ``bind`` reads; None if its argument is not there."""
        if bind["source"] == "constant":
            return int(bind["add"])
        name, axis = self._params[bind["param"]]["name"], bind["axis"]
        if bind["source"] == "scalar":
            return _as_int(values[name])
        view = views.get(name)
        if view is None or len(view.shape) <= axis:
            return None
        value = view.shape[axis] if bind["source"] == "shape" else _stride(view, axis)
        return int((value - bind["add"]) * bind["div"] // bind["mul"])

    def _dim_array(self, dims: Mapping[str, int]) -> ctypes.Array[ctypes.c_int64]:
        names = [dim["name"] for dim in self._dims]
        if set(names) != set(dims):
            raise TypeError(f"{self.name} has the dims {', '.join(names)}, got {', '.join(dims) or 'none'}")
        return _int64_array([dims[name] for name in names])

    # ---- running ----

    def _filled(
        self,
        values: Mapping[str, object],
        views: Mapping[str, _View],
        dims: Mapping[str, int],
        run: _Exec,
        own_workspace: bool,
    ) -> _Call:
        """``dims``: every dim, or none, when the library reads them from the shapes."""
        run.struct_size = ctypes.sizeof(_Exec)
        run.device = device = self._device(views)
        call = _Call(self._library, self._handle, run, device, dims, len(self._params))
        for arg, param in zip(call.args, self._params, strict=False):
            self._fill(call, arg, param, values, views)
        call.slots = [call.tensors[name] for name in views]
        call.borrowed = (views, self._add_workspace(run, device, dims, call.args, own_workspace))
        return call

    def _device(self, views: Mapping[str, _View]) -> _Device:
        """The device of the first tensor; CPU if there is none."""
        device = next((view.device for view in views.values()), (CPU, 0))
        return _Device(CPU, 0) if device[0] in _CPU_LIKE else _Device(*device)

    def _fill(
        self,
        call: _Call,
        arg: _Arg,
        param: Mapping[str, Any],
        values: Mapping[str, object],
        views: Mapping[str, _View],
    ) -> None:
        """Writes one argument."""
        name = param["name"]
        if param["kind"] == "scalar":
            call.scalars[name] = arg, param
            _fill_scalar(arg, param, values[name], self.name)
            return
        view = views[name]
        if view.readonly and param["access"] != "in":
            raise LaunchError(
                1, "TILEC_ERR_ARGUMENT", f"{self.name}: {name} is written, but the array is read-only"
            )
        call.tensors[name] = tensor = view.to_c()
        arg.tag, arg.v.tensor = 7, ctypes.pointer(tensor)

    def _select(
        self,
        device: _Device,
        dims: ctypes.Array[ctypes.c_int64],
        args: ctypes.Array[_Arg] | None = None,
    ) -> int:
        """The variant for a call with these arguments, where there are any."""
        found = ctypes.c_void_p()
        table = self._library._table
        known = self._known_alignment(args) if args is not None and self._aligned else None
        self._library._check(table.select(self._handle, device, dims, known, ctypes.byref(found)))
        assert found.value is not None
        return found.value

    def _known_alignment(self, args: ctypes.Array[_Arg]) -> ctypes.Array[ctypes.c_uint32]:
        """At multiples of how many bytes each parameter begins."""
        given = (args[place] for place in range(len(self._params)))
        return (ctypes.c_uint32 * len(self._params))(*map(_alignment, given))

    def _variant_handle(self, number: int | None) -> int | None:
        """The variant with an id, as C knows it: both list them in dispatch order."""
        if number is None:
            return None
        ids = [entry["id"] for entry in self.metadata["variants"]]
        if number not in ids:
            raise LaunchError(1, "TILEC_ERR_ARGUMENT", f"{self.name} has no variant {number}; it has {ids}")
        info = ctypes.cast(self._handle, ctypes.POINTER(_KernelInfo)).contents
        return int(info.variants[ids.index(number)])

    def _add_workspace(
        self,
        run: _Exec,
        device: _Device,
        dims: Mapping[str, int],
        args: ctypes.Array[_Arg],
        own: bool,
    ) -> object:
        if not self._workspace:
            return None
        library, values = self._library, _int64_array([dims[dim["name"]] for dim in self._dims])
        run.variant = run.variant or self._select(device, values, args)
        size = ctypes.c_size_t()
        library._check(
            library._table.workspace_size(
                self._handle, run.variant, ctypes.byref(run), values, ctypes.byref(size)
            )
        )
        own = own or not self.keeps_workspace
        memory, run.workspace = library._workspace(device, run.stream or 0, size.value, own)
        run.workspace_size = size.value
        return memory


class _Call:
    """A launch with its C arguments, for one thread at a time; calling it runs the kernel. ``tensors`` and
    ``scalars`` are those arguments by parameter, ``slots`` the tensors in the order in which they were given,
    then made. ``borrowed``: what has to live until the last call."""

    def __init__(
        self, library: Library, handle: int, run: _Exec, device: _Device, dims: Mapping[str, int], params: int
    ) -> None:
        self.run, self.device, self.dims = run, device, dims
        self.is_on_host = device.device_type == CPU
        self.args = (_Arg * max(params + len(dims), 1))()
        for place, value in enumerate(dims.values(), params):
            self.args[place].tag, self.args[place].v.i = 1, value
        self.tensors: dict[str, _Tensor] = {}
        self.scalars: dict[str, tuple[_Arg, Mapping[str, Any]]] = {}
        self.slots: list[_Tensor] = []
        self.makers: list[Callable[[], Any]] = []
        self.borrowed: object = None
        self._launch, self._check = library._table.launch, library._check
        self._arguments = (handle, ctypes.byref(run), self.args, params + len(dims))

    def __call__(self) -> None:
        self._check(self._launch(*self._arguments))


class _Seen(NamedTuple):
    """The arguments of a call: ``key`` is all that decides how it goes but for ``addresses``, in the order of
    the arrays, and ``scalars`` by name."""

    key: tuple[object, ...]
    values: tuple[object, ...]
    addresses: list[int]
    scalars: list[tuple[str, object]]


class _KeptCalls:
    """Calls by their keys, to be made again. A call is taken out while it is made: other threads, and calls
    from within it, take others. Once there are too many keys, as lengths that grow make them, all go."""

    MOST_KEYS = 256

    def __init__(self) -> None:
        self._calls: dict[object, list[_Call]] = {}

    def take(self, key: object) -> _Call | None:
        """A call that nobody else has; None where there is none."""
        try:
            return self._calls[key].pop()
        except LookupError:
            return None

    def give(self, key: object, call: _Call) -> None:
        """Keeps a call that was made; its arrays are let go."""
        if call.device.device_type == METAL:  # whose arrays have offsets
            return
        call.borrowed = None
        if key not in self._calls and len(self._calls) >= self.MOST_KEYS:
            self._calls.clear()
        self._calls.setdefault(key, []).append(call)


#: What of an array decides how a call goes, and its address; None of one that has to be looked at anew.
_SeenArray: TypeAlias = "tuple[object, int] | None"


def _numpy_seen(array: Any) -> _SeenArray:
    interface = array.__array_interface__
    address, readonly = interface["data"]
    return (readonly, array.dtype, interface["shape"], interface["strides"]), address


def _torch_seen(tensor: Any) -> _SeenArray:
    try:
        address = tensor.data_ptr()
    except RuntimeError:  # one without memory: the call says so
        return None
    if tensor.is_neg():  # whose memory holds something else: the call says so
        return None
    return (tensor.device, tensor.dtype, tensor.shape, tensor.stride()), address


def _address(made: Any) -> int:
    """Of an array that a call made, of torch or NumPy."""
    return int(made.data_ptr() if hasattr(made, "data_ptr") else made.__array_interface__["data"][0])


def _unseen(_value: object) -> _SeenArray:
    return None


_SEEN = {
    "numpy.ndarray": _numpy_seen,
    "torch.Tensor": _torch_seen,
    "torch.nn.parameter.Parameter": _torch_seen,
}


@functools.lru_cache(maxsize=64)
def _seeing(kind: type) -> Callable[[Any], _SeenArray]:
    """How arrays of a class are looked at; subclasses may mean anything."""
    return _SEEN.get(f"{kind.__module__}.{kind.__qualname__}", _unseen)


def _alignment(arg: _Arg) -> int:
    """The largest power of two that divides an address, of those that a library asks for."""
    address = _begin(arg.v.tensor.contents) if arg.tag == 7 else arg.v.i
    most = 1 << 31
    return most if not address else min(address & -address, most)


def _begin(tensor: _Tensor) -> int:
    """The address of a tensor, or how far it begins into an object of Metal's."""
    return int(tensor.byte_offset if tensor.device.device_type == METAL else tensor.data or 0)


class _Kernels(dict[str, Kernel]):
    """The kernels of a library, which its ``name`` stands for in the error about one that it lacks."""

    def __init__(self, name: str, kernels: Mapping[str, Kernel]) -> None:
        super().__init__(kernels)
        self._name = name

    def missing(self, kernel: str) -> str:
        """What is said of a name that is none of a kernel."""
        return f"library {self._name} has no kernel {kernel!r}; it has {', '.join(self)}"

    def __missing__(self, kernel: str) -> Kernel:
        raise KeyError(self.missing(kernel))


class Library:
    """A loaded library: ``kernels`` by name, each also an attribute; ``metadata`` is what the build wrote."""

    def __init__(self, path: Path) -> None:
        _check_file(path)
        try:
            self._dll = ctypes.CDLL(os.path.abspath(path))  # a bare name would be searched for elsewhere
        except OSError as error:
            raise LibraryError(f"{path} cannot be loaded: {error}") from error
        self.path = path
        self._table = self._query()
        text = ctypes.string_at(self._table.metadata_json, self._table.metadata_json_size)
        self.metadata: dict[str, Any] = _parse_metadata(path, text)
        try:
            self.name: str = self.metadata["name"]
            self.version: str = self.metadata["version"]
            self.build_id: str = self.metadata["build_id"]
            found = {each["name"]: Kernel(self, each) for each in self.metadata["kernels"]}
            self.kernels: dict[str, Kernel] = _Kernels(self.name, found)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise LibraryError(f"{path} is damaged: its metadata is no library's ({error!r})") from error
        self._local = threading.local()

    def __repr__(self) -> str:
        count = len(self.kernels)
        return f"<library {self.name} {self.version}: {count} kernel{'' if count == 1 else 's'}>"

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.kernels]

    def __getattr__(self, name: str) -> Kernel:
        kernels = self.__dict__.get("kernels", {})
        if name in kernels:
            return kernels[name]  # type: ignore[no-any-return]
        raise AttributeError(kernels.missing(name) if kernels else f"the library has no {name!r}")

    def preload(self, device: str = "cpu") -> None:
        """As `Kernel.preload`, for every kernel."""
        self._check(self._table.preload(None, _parse_device(device)))

    def _query(self) -> _Library:
        try:
            query = self._dll.tilec_library_query
        except AttributeError:
            raise LibraryError(f"{self.path} is a shared library, but none that tilec built") from None
        query.restype, query.argtypes = ctypes.POINTER(_Library), [ctypes.c_uint32]
        table = query(ABI_VERSION)
        if not table:
            raise LibraryError(
                f"{self.path} needs a newer ABI than {ABI_VERSION}, the one of this loader; update tilec"
            )
        return table.contents  # type: ignore[no-any-return]

    def _check(self, status: int) -> None:
        if status != 0:
            raise LaunchError(
                status, self._table.status_name(status).decode(), self._table.last_error().decode()
            )

    def _workspace(self, device: _Device, stream: int, size: int, own: bool) -> tuple[object, int]:
        """One growing block per thread, context and stream: (owner, address), aligned as the device wants it.
        What a graph of torch captures, and the ``own`` block of a call, are made for it: later growth takes
        nothing away."""
        kind = _KINDS.get(device.device_type)
        if kind is None:
            text = f"this loader has no memory of devices of type {device.device_type} (of dlpack.h)"
            raise LaunchError(7, "TILEC_ERR_WORKSPACE", f"{text}; add_kind tells it how to get some")
        if own or kind.is_capturing(stream):
            return kind.memory(device, stream, size)[:2]
        context = kind.context_id(device.device_id)
        blocks = self._local.__dict__
        key = f"{device.device_type}:{device.device_id}:{context}:{stream}"
        block = blocks.get(key)
        if block is None or block[2] < size:
            blocks.pop(key, None)
            block = blocks[key] = kind.memory(device, stream, size)
        return block[0], block[1]


def load(path: str | os.PathLike[str]) -> Library:
    """Loads a built library: its file, or the folder that `tilec build` wrote. Raises LibraryError."""
    return Library(_find(Path(path)))


def _find(path: Path) -> Path:
    if not path.exists():
        text = f"{path} is not there; pass the folder that `tilec build` wrote, or the library's file"
        raise LibraryError(text)
    if not path.is_dir():
        return path
    found = [each for folder in ("lib", f"lib/{own_folder()}", ".") for each in _libraries_in(path / folder)]
    if len(found) > 1:
        found = [each for each in found if has_kernels(each)] or found
    if len(found) != 1:
        problem = (
            f"holds {len(found)} libraries ({', '.join(each.name for each in found)})"
            if found
            else "holds no library"
        )
        raise LibraryError(f"{path} {problem}; pass the library itself")
    return found[0]


def own_folder() -> str:
    """Where a package for several hosts has the library of this machine: "x86_64-linux"."""
    machine, system = platform.machine().lower(), platform.system().lower()
    arch = next((name for name, known in _PROCESSORS.items() if machine in known), machine)
    return f"{arch}-{'macos' if system == 'darwin' else system}"


def _libraries_in(folder: Path) -> list[Path]:
    """The files of a folder that this system takes for libraries."""
    own = [kind for kind in _FILE_FORMATS.values() if kind.system == platform.system()]
    return sorted(each for kind in own for each in folder.glob(f"{kind.prefix}*{kind.suffix}"))


def has_kernels(path: Path) -> bool:
    """Not so the libraries of operators beside one with kernels."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return format_of(data) is not None and META_SECTION in section_places(data)


def _parse_metadata(path: Path, text: bytes) -> dict[str, Any]:
    try:
        return dict(json.loads(text))
    except ValueError as error:
        raise LibraryError(f"{path} is damaged: its metadata is no JSON ({error})") from error


_PROCESSORS = {"x86_64": ("x86_64", "amd64"), "aarch64": ("aarch64", "arm64")}


def _check_file(path: Path) -> None:
    """What the dynamic loader would say less clearly, or die of."""
    try:
        with open(path, "rb") as file:
            head = file.read(64)
    except OSError as error:
        raise LibraryError(f"{path} cannot be read: {error.strerror}") from error
    if len(head) < 64 or format_of(head) is None:
        raise LibraryError(f"{path} is no shared library (it does not start as an ELF, Mach-O or PE file)")
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        _require_this_machine(path, data)
        problem = damage_of(data)
        foreign = not problem and META_SECTION not in section_places(data)
    if problem:
        raise LibraryError(
            f"{path} is {problem}" if problem.startswith("cut") else f"{path} is damaged: {problem}"
        )
    if foreign:
        raise LibraryError(f"{path} is a shared library, but none that tilec built")


def _require_this_machine(path: Path, data: _Bytes) -> None:
    kind, here, arch = format_of(data), platform.system(), processor_of(data)
    if kind is not None and kind.system != here:
        raise LibraryError(f"{path} is for {kind.system}, this is {here}")
    if platform.machine().lower() not in _PROCESSORS.get(arch, ()):
        raise LibraryError(f"{path} is for {arch}, this machine is {platform.machine()}")


def _cut_off(data: _Bytes) -> str:
    """That the end of an ELF file is missing: its linker writes the table of sections last."""
    (table,), (entry, count) = struct.unpack_from("<Q", data, 40), struct.unpack_from("<HH", data, 58)
    whole = table + entry * count
    return f"cut off: {len(data)} bytes of {whole} are there" if len(data) < whole else ""


# ---- formats: what each system takes for a shared library ----

_ELF, _MACH_O, _PE = b"\x7fELF", b"\xcf\xfa\xed\xfe", b"MZ"


class Format(NamedTuple):
    """``system``: whose libraries are written in it, as `platform.system` says it; ``prefix`` and ``suffix``
    of their names; ``processors`` by the number in the file."""

    system: str
    prefix: str
    suffix: str
    processors: Mapping[int, str]


MACH_O = Format("Darwin", "lib", ".dylib", {0x01000007: "x86_64", 0x0100000C: "aarch64"})
_FILE_FORMATS = {
    _ELF: Format("Linux", "lib", ".so", {62: "x86_64", 183: "aarch64"}),
    _MACH_O: MACH_O,
    _PE: Format("Windows", "", ".dll", {0x8664: "x86_64", 0xAA64: "aarch64"}),
}


def format_of(data: _Bytes) -> Format | None:
    """The format that a file begins as; None for what is no library of 64 bits, little endian."""
    if bytes(data[:4]) == _ELF and bytes(data[4:6]) != b"\x02\x01":
        return None
    return next((kind for magic, kind in _FILE_FORMATS.items() if data[: len(magic)] == magic), None)


def processor_of(data: _Bytes) -> str:
    """The architecture of a library in one of the formats: "x86_64" or "aarch64", else its number."""
    layout, at = "<H", 18
    if data[:4] == _MACH_O:
        layout, at = "<I", 4
    elif data[:2] == _PE:
        at = _pe_header(data)
    (number,) = struct.unpack_from(layout, data, at)
    kind = format_of(data)
    return kind.processors.get(number, f"machine {number}") if kind else f"machine {number}"


def _pe_header(data: _Bytes) -> int:
    """Where the machine of a PE file is."""
    (at,) = struct.unpack_from("<I", data, 60)
    return int(at) + 4


def _pe_places(data: _Bytes) -> tuple[int, dict[str, tuple[int, int]]]:
    """The end of the headers of a PE file; place and size of its sections. Ours begin with ".tl" there, since
    a name has eight letters."""
    at = _pe_header(data)
    count, optional = struct.unpack_from("<H", data, at + 2)[0], struct.unpack_from("<H", data, at + 16)[0]
    places, table = {}, at + 20 + optional
    for number in range(count):
        name, in_memory, _, size, place = struct.unpack_from("<8sIIII", data, table + 40 * number)
        text = name.rstrip(b"\0").decode(errors="replace")
        text = f".tilec.{text[3:]}" if text.startswith(".tl") and text != ".tls" else text
        places[text] = (place, min(size, in_memory))
    return table + 40 * count, places


_SEGMENT, _ZEROS = 0x19, (0x01, 0x0C, 0x12)  # LC_SEGMENT_64; types of sections without bytes in the file


def _mach_o_places(data: _Bytes) -> tuple[int, dict[str, tuple[int, int]]]:
    """The same of a Mach-O file, whose sections have names in segments."""
    count, size = struct.unpack_from("<II", data, 16)
    places, at = {}, 32
    for _ in range(count):
        command, length = struct.unpack_from("<II", data, at)
        sections = struct.unpack_from("<I", data, at + 64)[0] if command == _SEGMENT else 0
        for number in range(sections):
            row = struct.unpack_from("<16s16sQQIIIII", data, at + 72 + 80 * number)
            name, segment = (text.rstrip(b"\0").decode(errors="replace") for text in row[:2])
            name = name.replace("__tilec_", ".tilec.") if name.startswith("__tilec_") else f"{segment},{name}"
            if row[8] & 0xFF not in _ZEROS:
                places[name] = (row[4], row[3])
        at += length
    return 32 + size, places


# ---- damage: seen before the file is loaded, since nothing can be done about it afterwards ----

META_SECTION, SUMS_SECTION = ".tilec.meta", ".tilec.sums"
_SUMMED_HEADERS = "program headers"
#: Of both sections: mark, format, 0, bytes and sha256 of what follows.
MARKED = struct.Struct("<8sIIQ32s")
_META_MARK, SUMS_MARK = b"TILECMET", b"TILECSUM"
#: Not summed: what tools that strip a file write anew, and the sums.
_UNSUMMED = ("", ".shstrtab", SUMS_SECTION)
_Bytes = bytes | bytearray | mmap.mmap


def damage_of(data: _Bytes) -> str:
    """What is wrong with the bytes of a shared library; empty where nothing is. Of a library that tilec
    built, every byte that the dynamic loader uses counts: its program headers and the content of its sections
    are compared with what the build wrote down."""
    try:
        if bytes(data[:4]) != _ELF:
            return _content_problem(data)
        return _cut_off(data) or _segment_problem(bytes(data[:64]), data) or _content_problem(data)
    except (struct.error, IndexError, ValueError, OverflowError, MemoryError):
        return "its headers lead out of the file"


def section_digests(data: _Bytes) -> dict[str, str]:
    """The sha256 of the program headers and, by name, of the content of every section."""
    start, end = _program_headers(data)
    found = {_SUMMED_HEADERS: hashlib.sha256(data[start:end]).hexdigest()}
    for name, (at, size) in section_places(data).items():
        if name not in _UNSUMMED:
            found[name] = hashlib.sha256(data[at : at + size]).hexdigest()
    return found


def _program_headers(data: _Bytes) -> tuple[int, int]:
    """From where to where what the dynamic loader goes by lies; Mach-O's, which a signature changes, are not
    looked at."""
    if data[:4] == _MACH_O:
        return 0, 32
    if data[:2] == _PE:
        return 0, _pe_places(data)[0]
    (start,), (entry, count) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<HH", data, 54)
    return start, start + entry * count


def section_places(data: _Bytes) -> dict[str, tuple[int, int]]:
    """Place and size of what sections hold, by name, those of tilec as ELF spells them; empty for a file
    without a table of them."""
    try:
        if data[:4] == _MACH_O:
            return _mach_o_places(data)[1]
        return _pe_places(data)[1] if data[:2] == _PE else _elf_places(data)
    except (struct.error, OverflowError):  # the table leads out of the file
        return {}


def _elf_places(data: _Bytes) -> dict[str, tuple[int, int]]:
    headers = _section_headers(data)
    return {
        name.decode(errors="replace"): (offset, size)
        for name, kind, _, _, offset, size in headers
        if kind != _NO_BYTES
    }


def _content_problem(data: _Bytes) -> str:
    """What is wrong with the sections that describe the file, and with what they say of the others."""
    contents = section_places(data)
    if META_SECTION not in contents:
        return ""
    for name, mark in ((META_SECTION, _META_MARK), (SUMS_SECTION, SUMS_MARK)):
        if name in contents and _marked(data, *contents[name], mark) is None:
            return f"its section {name} does not match its own sha256"
    if SUMS_SECTION not in contents:
        return f"it has no section {SUMS_SECTION}"
    written = json.loads(_marked(data, *contents[SUMS_SECTION], SUMS_MARK) or b"")
    present = section_digests(data)
    changed = [name for name, digest in written.items() if present.get(name) != digest]
    if changed:
        return f"{', '.join(changed)} changed after it was built"
    return _dynamic_problem(data) if bytes(data[:4]) == _ELF else ""


def _marked(data: _Bytes, at: int, size: int, mark: bytes) -> bytes | None:
    """The content of a section that starts with a mark and its own digest; None where that is not so."""
    if size < MARKED.size:
        return None
    found, version, _, length, digest = MARKED.unpack_from(data, at)
    content = bytes(data[at + MARKED.size : at + MARKED.size + length])
    whole = (found, version, len(content)) == (mark, 1, length) and length <= size - MARKED.size
    return content if whole and hashlib.sha256(content).digest() == digest else None


# ---- the segments of an ELF file: the dynamic loader maps what they say, and dies of what is wrong ----

_LOAD, _DYNAMIC, _TLS, _RELRO = 1, 2, 7, 0x6474E552
_MOST_SEGMENTS, _MOST_ZEROS, _MOST_ALIGNMENT = 64, 1 << 30, 1 << 21
_ALLOCATED, _THREAD_LOCAL, _NO_BYTES, _IS_DYNAMIC = 2, 0x400, 8, 6  # of sections: flags, types
_NEEDS = ((2, 4), (1, 2), (4, 1))  # a section that is there, written, run; the flag its segment needs
_WRITTEN = (".data", ".bss")


class _Piece(NamedTuple):
    """A segment, or a section; ``kind`` and ``flags`` differ between the two."""

    kind: int
    flags: int
    offset: int
    address: int
    in_file: int
    in_memory: int
    align: int = 1
    name: bytes = b""

    def holds(self, other: _Piece) -> bool:
        """Whether ``other`` lies inside, at the same distance between file and memory."""
        if not self.address <= other.address <= other.end <= self.end:
            return False
        if other.in_file == 0:
            return other.address >= self.address + self.in_file
        stored = other.offset + other.in_file <= self.offset + self.in_file
        return stored and other.offset - other.address == self.offset - self.address

    def has_alignment(self) -> bool:
        return 0 < self.align <= _MOST_ALIGNMENT and self.align & (self.align - 1) == 0

    def overlaps(self, other: _Piece) -> bool:
        return self.address < other.end and other.address < self.end

    @property
    def end(self) -> int:
        return self.address + self.in_memory


def _segment_problem(head: bytes, data: _Bytes) -> str:
    """What is wrong with the program headers; the sections, where there are any, say what they cover."""
    (kind,), (start,), (entry, count) = (
        struct.unpack_from("<H", head, 16),
        struct.unpack_from("<Q", head, 32),
        struct.unpack_from("<HH", head, 54),
    )
    if kind != 3:
        return f"it is an ELF file of type {kind}, not a shared one"
    if entry != 56 or not 0 < count <= _MOST_SEGMENTS or start + entry * count > len(data):
        return "its program headers are not where they should be"
    segments = [_segment(data, start + entry * number) for number in range(count)]
    loads = [each for each in segments if each.kind == _LOAD]
    for each in segments:
        if each.kind == _LOAD and not _can_be_mapped(each, len(data)):
            return f"its segment at {each.offset:#x} leaves the file"
        if each.kind == _TLS and not each.has_alignment():
            return "its thread-local segment has no alignment"
        if each.kind != _LOAD and each.in_file and not any(load.holds(each) for load in loads):
            return f"its segment at {each.offset:#x} is not loaded"
    if any(one.end > other.address for one, other in itertools.pairwise(loads)):
        return "its segments overlap"
    return _section_problem(segments, loads, _sections(data))


def _segment(data: _Bytes, at: int) -> _Piece:
    kind, flags, offset, address, _, in_file, in_memory, align = struct.unpack_from("<IIQQQQQQ", data, at)
    return _Piece(kind, flags, offset, address, in_file, in_memory, align)


def _can_be_mapped(load: _Piece, size: int) -> bool:
    return (
        load.offset + load.in_file <= size
        and load.in_file <= load.in_memory <= load.in_file + _MOST_ZEROS
        and load.has_alignment()
        and (load.address - load.offset) % load.align == 0
        and load.end < 1 << 47
    )


def _sections(data: _Bytes) -> list[_Piece]:
    return [
        _Piece(kind, flags, offset, address, 0 if kind == _NO_BYTES else size, size, 1, name)
        for name, kind, flags, address, offset, size in _section_headers(data)
        if flags & _ALLOCATED and size
    ]


def _section_headers(data: _Bytes) -> list[tuple[bytes, int, int, int, int, int]]:
    """Name, type, flags, address, place and size of each section; none without a table of them."""
    (start,), (entry, count, names) = struct.unpack_from("<Q", data, 40), struct.unpack_from("<HHH", data, 58)
    if entry != 64 or names >= count:
        return []
    rows = [struct.unpack_from("<IIQQQQ", data, start + entry * number) for number in range(count)]
    texts = bytes(data[rows[names][4] : rows[names][4] + rows[names][5]])
    return [(_name(texts, row[0]), *row[1:]) for row in rows]


def _name(texts: bytes, at: int) -> bytes:
    return texts[at : texts.find(b"\0", at)]


def _section_problem(segments: Sequence[_Piece], loads: Sequence[_Piece], sections: Sequence[_Piece]) -> str:
    """Each section must lie in a segment that may do with it what it is for."""
    by_kind = {kind: [each for each in segments if each.kind == kind] for kind in (_DYNAMIC, _TLS, _RELRO)}
    for section in sections:
        name = section.name.decode(errors="replace")
        if section.flags & _THREAD_LOCAL:
            if not any(each.address <= section.address <= section.end <= each.end for each in by_kind[_TLS]):
                return f"no segment holds its section {name}"
            continue
        home = next((each for each in loads if each.holds(section)), None)
        if home is None:
            return f"no segment holds its section {name}"
        missing = [needed for use, needed in _NEEDS if section.flags & use and not home.flags & needed]
        if missing:
            return f"the segment of its section {name} cannot be used as that"
        if name in _WRITTEN and any(each.overlaps(section) for each in by_kind[_RELRO]):
            return f"its section {name} is protected from writes"
        if section.kind == _IS_DYNAMIC and [each.address for each in by_kind[_DYNAMIC]] != [section.address]:
            return f"its section {name} is not where a segment says"
    return ""


# ---- the dynamic section: the dynamic loader follows its addresses without a look ----

#: By section: the tags that give its address and its size, and one with a value that never changes.
_TAGS: dict[str, tuple[int, int | None, tuple[int, int] | None]] = {
    ".dynsym": (6, None, (11, 24)),
    ".dynstr": (5, 10, None),
    ".rela.dyn": (7, 8, (9, 24)),
    ".rela.plt": (23, 2, (20, 7)),
    ".relr.dyn": (36, 35, (37, 8)),
    ".hash": (4, None, None),
    ".gnu.hash": (0x6FFFFEF5, None, None),
    ".gnu.version": (0x6FFFFFF0, None, None),
    ".gnu.version_r": (0x6FFFFFFE, None, None),
    ".gnu.version_d": (0x6FFFFFFC, None, None),
    ".init": (12, None, None),
    ".fini": (13, None, None),
    ".init_array": (25, 27, None),
    ".fini_array": (26, 28, None),
}
#: Chains of records, which end with the distance of the next one, and the tag that counts them.
_CHAINS = {".gnu.version_r": ("<HHIII", 0x6FFFFFFF), ".gnu.version_d": ("<HHHHIII", 0x6FFFFFFD)}
_NEEDED, _SONAME, _RELATIVE_COUNT, _PLT_GOT = 1, 14, 0x6FFFFFF9, 3
#: What may be there whatever the sections are: also SYMBOLIC, TEXTREL, BIND_NOW, FLAGS, FLAGS_1, and switches
#: of processors.
_FREE_TAGS = (
    *(_NEEDED, _SONAME, _RELATIVE_COUNT, _PLT_GOT),
    *(16, 22, 24, 30, 0x6FFFFFFB, *range(0x70000000, 0x70000006)),
)
_RELATIVE = (8, 1027)  # relocations of x86-64 and aarch64
_Section = tuple[bytes, int, int, int, int, int]


def _dynamic_problem(data: _Bytes) -> str:
    """What in the dynamic section does not agree with the sections that it is about."""
    sections = {row[0].decode(errors="replace"): row for row in _section_headers(data) if row[2] & _ALLOCATED}
    if not {".dynamic", ".dynstr", ".dynsym"} <= set(sections):
        return "it has no dynamic section, or none of its names and symbols"
    table = list(struct.iter_unpack("<QQ", _section_bytes(data, sections[".dynamic"])))
    entries = list(itertools.takewhile(lambda entry: entry[0] != 0, table))
    if len(entries) == len(table):
        return "its dynamic section has no end"
    wanted, values = _wanted_tags(data, sections), dict(entries)
    wrong = [tag for tag, value in wanted.items() if values.get(tag) != value]
    wrong += [tag for tag in values if tag not in (*wanted, *_FREE_TAGS)]
    wrong += [tag for (tag, _), (after, _) in itertools.pairwise(sorted(entries)) if tag == after != _NEEDED]
    if wrong:
        return f"its dynamic section is not about its sections (entry {wrong[0]:#x})"
    return _needs_problem(data, sections, entries) or _relative_problem(data, sections, values)


def _section_bytes(data: _Bytes, section: _Section) -> bytes:
    _, _, _, _, offset, size = section
    return bytes(data[offset : offset + size])


def _wanted_tags(data: _Bytes, sections: Mapping[str, _Section]) -> dict[int, int]:
    """What the dynamic section has to say of the sections that are there."""
    wanted = {}
    for name, (address, size, fixed) in _TAGS.items():
        if name in sections:
            wanted[address] = sections[name][3]
            wanted |= {} if size is None else {size: sections[name][5]}
            wanted |= dict([fixed] if fixed else [])
    for name, (layout, count) in _CHAINS.items():
        if name in sections:
            wanted[count] = len(_chain(_section_bytes(data, sections[name]), layout))
    return wanted


def _chain(content: bytes, layout: str) -> list[tuple[int, ...]]:
    """The records of a chain."""
    records = [struct.unpack_from(layout, content)]
    at = 0
    while records[-1][-1]:
        at += records[-1][-1]
        records.append(struct.unpack_from(layout, content, at))
    return records


def _needs_problem(data: _Bytes, sections: Mapping[str, _Section], entries: Sequence[tuple[int, int]]) -> str:
    """Names of libraries, each once, begin in the table of strings; what versions are asked of is loaded."""
    strings = _section_bytes(data, sections[".dynstr"])
    places = [value for tag, value in entries if tag in (_NEEDED, _SONAME)]
    if any(place >= len(strings) or (place and strings[place - 1]) for place in places):
        return "its dynamic section names libraries at places where no name begins"
    names = [_name(strings, place) for place in places]
    if len(set(names)) < len(names) or not all(b".so" in name for name in names):
        return "its dynamic section names a library twice, or what is none"
    loaded = {_name(strings, value) for tag, value in entries if tag == _NEEDED}
    versions = sections.get(".gnu.version_r")
    records = [] if versions is None else _chain(_section_bytes(data, versions), "<HHIII")
    asked = {_name(strings, record[2]) for record in records}
    return "" if asked <= loaded else "it asks for versions of a library that it does not need"


def _relative_problem(data: _Bytes, sections: Mapping[str, _Section], values: Mapping[int, int]) -> str:
    """The relocations that are announced as plain ones are."""
    table = _section_bytes(data, sections[".rela.dyn"]) if ".rela.dyn" in sections else b""
    count = values.get(_RELATIVE_COUNT, 0)
    kinds = [info & 0xFFFFFFFF for _, info, _ in struct.iter_unpack("<QQQ", table[: 24 * count])]
    whole = len(kinds) == count and all(kind in _RELATIVE for kind in kinds)
    return "" if whole else "its dynamic section counts more relocations than there are of a kind"


# ---- small helpers ----


def _int64_array(values: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * max(len(values), 1))(*values)


def _stride(view: _View, axis: int) -> int:
    if view.strides is not None:
        return view.strides[axis]
    product = 1
    for extent in view.shape[axis + 1 :]:
        product *= extent
    return product


def _parse_device(text: str) -> _Device:
    if not isinstance(text, str):
        raise TypeError(f"the device is a text such as 'cuda:0', got {type(text).__name__}; name dims: M=17")
    name, _, number = text.partition(":")
    kind = _kind_named(name)
    if kind is None or (number and not number.isdecimal()):
        raise ValueError(
            f"unknown device {text!r}; write {device_texts([each.name for each in _KINDS.values()])}"
        )
    return _Device(kind.number, int(number or 0))


def device_texts(names: Sequence[str]) -> str:
    """How devices of these kinds, the CPU first, are written."""
    first, *others = names
    texts = [first, *(text for name in others for text in (name, f"{name}:<number>"))]
    return " or ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))


def _fill_scalar(arg: _Arg, param: Mapping[str, Any], value: Any, kernel: str) -> None:
    is_float = param["dtype"].startswith(_FLOATS)
    try:
        if is_float and isinstance(value, (str, bytes, bytearray)):
            raise TypeError  # float() would read the text
        if is_float:
            arg.tag, arg.v.f = 3, float(value)
        else:
            arg.tag, arg.v.i = 1, _as_int(value, unsigned=param["dtype"] == "uint64")
    except OverflowError:
        raise TypeError(f"{kernel}: {param['name']} = {value} does not fit {param['dtype']}") from None
    except (TypeError, ValueError):
        wanted = "a number" if is_float else "True or False" if param["dtype"] == "bool" else "an int"
        raise TypeError(f"{kernel}: {param['name']} must be {wanted}, got {type(value).__name__}") from None


def _as_int(value: Any, unsigned: bool = False) -> int:
    """Python and NumPy integers and booleans; a float is refused rather than cut. ``unsigned``: the signed
    number with the 64 bits of one that has no sign."""
    number = int(value) if type(value).__name__ in ("bool", "bool_") else operator.index(value)
    low = 0 if unsigned else -(2**63)
    if not low <= number < low + 2**64:
        raise OverflowError
    return number - 2**64 if number >= 2**63 else number


# ---- kinds of devices ----


class Kind:
    """What calls have to know of the devices of one ``number`` of dlpack.h, which ``name`` ("cuda:0") stands
    for. This one is of devices that work in the host's memory and have no streams."""

    def __init__(self, name: str, number: int) -> None:
        self.name, self.number = name, number

    def producer_options(self, stream: int) -> dict[str, Any]:
        """What __dlpack__ takes so that work on ``stream`` finds an array ready."""
        return {}

    def memory(self, device: _Device, stream: int, size: int) -> tuple[object, int, int]:
        """(owner, address, bytes) of a workspace for work on ``stream``."""
        return _host_memory(device, stream, size)

    def context_id(self, number: int) -> int:
        """What workspaces of a device may not outlive."""
        return 0

    def is_capturing(self, stream: int) -> bool:
        """Whether work on ``stream`` is kept and done again later."""
        return False

    def owner(self, address: int) -> int | None:
        """The number of the device whose memory an address is in; None where it is none's."""
        return None


class _CudaKind(Kind):
    """NVIDIA's driver, and the memory and the streams of torch or CuPy where they are there."""

    def producer_options(self, stream: int) -> dict[str, Any]:
        return {"stream": stream or _DEFAULT_STREAM}

    def memory(self, device: _Device, stream: int, size: int) -> tuple[object, int, int]:
        return _cuda_memory(device, stream, size)

    def context_id(self, number: int) -> int:
        return cuda_driver().context_id(number)

    def is_capturing(self, stream: int) -> bool:
        return _is_capturing(stream)

    def owner(self, address: int) -> int | None:
        return _cuda_owner(address)


class _HipKind(Kind):
    """AMD's devices; torch, where it is built for them, calls them those of CUDA."""

    def producer_options(self, stream: int) -> dict[str, Any]:
        return {"stream": stream}

    def memory(self, device: _Device, stream: int, size: int) -> tuple[object, int, int]:
        if _torch_kind("cuda") == ROCM and sys.modules["torch"].cuda.is_available():
            return _torch_memory(device, stream, size)
        memory = DeviceMemory(device.device_id, size, hip_driver())
        return memory, memory.address, size

    def is_capturing(self, stream: int) -> bool:
        return _is_capturing(stream)


class _MetalKind(Kind):
    """Apple's devices: calls without a queue wait until they are done."""

    def memory(self, device: _Device, stream: int, size: int) -> tuple[object, int, int]:
        buffer = MetalBuffer(device.device_id, size)
        return buffer, buffer.address, size


_KINDS = {
    kind.number: kind
    for kind in (
        Kind("cpu", CPU),
        _CudaKind("cuda", CUDA),
        _HipKind("hip", ROCM),
        _MetalKind("metal", METAL),
    )
}


def add_kind(kind: Kind) -> None:
    """Devices of a further kind, for libraries that have code for them."""
    _KINDS[kind.number] = kind


def _kind_named(name: str) -> Kind | None:
    return next((kind for kind in _KINDS.values() if kind.name == name), None)


def device_of_variant(entry: Mapping[str, Any]) -> str:
    """The name of the devices that a variant of the metadata has code for."""
    return str(entry.get("device", "cpu"))


# ---- CUDA: streams and memory of the framework that the arrays come from ----


def _current_stream(values: Iterable[Any]) -> int:
    """The current stream of torch or CuPy for the first of their CUDA arrays; 0, the default stream, if there
    is none."""
    for value in values:
        if getattr(value, "is_cuda", False):
            return int(sys.modules["torch"].cuda.current_stream(value.device).cuda_stream)
        if _is_cupy(value):
            return int(sys.modules["cupy"].cuda.get_current_stream().ptr)
    return 0


def _is_cupy(value: object) -> bool:
    return type(value).__module__.partition(".")[0] == "cupy"


def _is_capturing(stream: int) -> bool:
    """Whether torch captures a graph on ``stream``."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_current_stream_capturing():
        return False
    return bool(torch.cuda.current_stream().cuda_stream == stream)


def _host_memory(_device: _Device, _stream: int, size: int) -> tuple[object, int, int]:
    """(owner, address, bytes) of a block of host memory."""
    block = (ctypes.c_char * (size + 64))()
    return block, (ctypes.addressof(block) + 63) // 64 * 64, size


def _cuda_memory(device: _Device, stream: int, size: int) -> tuple[object, int, int]:
    """(owner, address, bytes) of a block of device memory for work on ``stream``: of a framework that is
    there (both align blocks to 512 bytes and reuse freed ones in the order of the stream), else the driver's,
    which waits for the device before it frees."""
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and torch.cuda.is_available():
        return _torch_memory(device, stream, size)
    if cupy is not None:
        with _on_cupy_stream(stream, device.device_id):
            block = cupy.empty(size, cupy.uint8)
        return block, block.data.ptr, size
    memory = DeviceMemory(device.device_id, size)
    return memory, memory.address, size


def _torch_memory(device: _Device, stream: int, size: int) -> tuple[object, int, int]:
    """The same, of torch."""
    torch, number = sys.modules["torch"], device.device_id
    with _on_torch_stream(stream, number):
        block = torch.empty(size, dtype=torch.uint8, device=f"cuda:{number}")
    return block, block.data_ptr(), size


def _on_torch_stream(stream: int, device: int) -> contextlib.AbstractContextManager[object]:
    """Where torch takes memory for work on ``stream``."""
    cuda = sys.modules["torch"].cuda
    if cuda.current_stream(device).cuda_stream == stream:
        return contextlib.nullcontext()
    # an ExternalStream of address 0 would be any other stream
    on = cuda.ExternalStream(stream, device=device) if stream else cuda.default_stream(device)
    entered: contextlib.AbstractContextManager[object] = cuda.stream(on)
    return entered


def _outputs(makers: Sequence[Callable[[], Any]], values: Iterable[Any], stream: int | None) -> list[Any]:
    """What ``makers`` make for work on ``stream``; None: on the current one."""
    if stream is None or not makers:
        return [make() for make in makers]
    with _allocating(values, stream):
        return [make() for make in makers]


def _allocating(values: Iterable[Any], stream: int) -> contextlib.AbstractContextManager[object]:
    """Where outputs are made like the first of some arrays that is of torch's or CuPy's on a GPU, for work on
    ``stream``. Both hand freed memory on in the order of a stream."""
    for value in values:
        if getattr(value, "is_cuda", False):
            return _on_torch_stream(stream, value.device.index or 0)
        if _is_cupy(value):
            return _on_cupy_stream(stream, value.device.id)
    return contextlib.nullcontext()


@contextlib.contextmanager
def _on_cupy_stream(stream: int, device: int) -> Iterator[None]:
    """Where CuPy takes memory for work on ``stream``."""
    cuda = sys.modules["cupy"].cuda
    with cuda.Device(device), cuda.ExternalStream(stream):
        yield


class DeviceMemory:
    """A block of a device's memory from the driver itself, by default CUDA's, at a multiple of 256 bytes;
    freed with this object. For programs without a framework that has such memory.

    Raises:
        LaunchError: there is no driver or no such device, or the driver refused.
    """

    def __init__(self, device: int, size: int, driver: GpuDriver | None = None) -> None:
        self._driver = driver or cuda_driver()
        self._device, self.size = device, size
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(size, 1)))
        self.address: int = address.value

    def write(self, data: Any) -> None:
        """Fills the block from ``data``, which has its size and the buffer protocol."""
        host = (ctypes.c_char * self.size).from_buffer(data)
        self._call("cuMemcpyHtoD_v2", ctypes.c_uint64(self.address), host, ctypes.c_size_t(self.size))

    def read(self, data: Any) -> None:
        """Copies the block into ``data`` when the device has done all work that was launched before. An error
        of that work is raised here."""
        host = (ctypes.c_char * self.size).from_buffer(data)
        self._call("cuCtxSynchronize")
        self._call("cuMemcpyDtoH_v2", host, ctypes.c_uint64(self.address), ctypes.c_size_t(self.size))

    def __del__(self) -> None:
        if getattr(self, "address", 0):
            with contextlib.suppress(LaunchError):  # the device may have failed
                self._call("cuMemFree_v2", ctypes.c_uint64(self.address))

    def _call(self, function: str, *arguments: object) -> None:
        """One function of the driver in the device's context."""
        self._driver.call(self._device, function, *arguments)


class ManagedMemory:
    """A block of memory that this process and the devices of a driver see at one address; freed with this
    object.

    Raises:
        LaunchError: there is no driver or no device, or the driver refused.
    """

    def __init__(self, size: int, device: int = 0, driver: GpuDriver | None = None) -> None:
        self._driver, self._device, self.size = driver or cuda_driver(), device, size
        address = ctypes.c_uint64()
        whole = ctypes.c_size_t(max(size, 1))
        self._driver.call(device, "cuMemAllocManaged", ctypes.byref(address), whole, ctypes.c_uint(1))
        self.address: int = address.value

    def write(self, data: Any) -> None:
        """Fills the block from ``data``, which has its size and the buffer protocol."""
        ctypes.memmove(self.address, (ctypes.c_char * self.size).from_buffer(data), self.size)

    def __del__(self) -> None:
        if getattr(self, "address", 0):
            with contextlib.suppress(LaunchError):  # the device may have failed
                self._driver.call(self._device, "cuMemFree_v2", ctypes.c_uint64(self.address))


class _Driver:
    """libcuda.so.1. Calls run in the current context if it is on their device, else in its primary one: the
    rule by which libraries launch."""

    def __init__(self) -> None:
        try:
            self._dll = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise LaunchError(40, "TILEC_ERR_NO_DRIVER", f"no CUDA driver: {error}") from error
        self._check("cuInit", 0)
        self._primary: dict[int, ctypes.c_void_p] = {}

    def call(self, device: int, function: str, *arguments: object) -> None:
        """Raises LaunchError with the driver's text."""
        current = ctypes.c_int()
        inside = self._dll.cuCtxGetDevice(ctypes.byref(current)) == 0 and current.value == device
        if inside:
            self._check(function, *arguments)
            return
        self._check("cuCtxPushCurrent_v2", self._context(device))
        try:
            self._check(function, *arguments)
        finally:
            self._dll.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))

    def enter(self, device: int) -> None:
        """Makes the device's primary context the current one of this thread, unless another of the device is:
        then no call has to change it."""
        context = ctypes.c_void_p()
        self.call(device, "cuCtxGetCurrent", ctypes.byref(context))
        self._check("cuCtxSetCurrent", context)

    def context_id(self, device: int) -> int:
        """The number of the context that calls on ``device`` run in. Unlike its address, and that of a stream
        in it, the number does not come again when the context is destroyed. 0: the driver, older than 12.0,
        has no such numbers."""
        number = ctypes.c_ulonglong()
        if hasattr(self._dll, "cuCtxGetId"):
            self.call(device, "cuCtxGetId", None, ctypes.byref(number))
        return number.value

    def _context(self, device: int) -> ctypes.c_void_p:
        if device not in self._primary:
            handle, context = ctypes.c_int(), ctypes.c_void_p()
            self._check("cuDeviceGet", ctypes.byref(handle), device)
            self._check("cuDevicePrimaryCtxRetain", ctypes.byref(context), handle)
            self._primary[device] = context
        return self._primary[device]

    def _check(self, function: str, *arguments: object) -> None:
        result = getattr(self._dll, function)(*arguments)
        if result == 0:
            return
        name, text = ctypes.c_char_p(), ctypes.c_char_p()
        self._dll.cuGetErrorName(result, ctypes.byref(name))
        self._dll.cuGetErrorString(result, ctypes.byref(text))
        raise _driver_failed(function, result, name.value, text.value)


def _driver_failed(function: str, result: int, name: bytes | None, text: bytes | None) -> LaunchError:
    said = f"{(name or b'?').decode()} ({result}): {(text or b'no text').decode()}"
    return LaunchError(42, "TILEC_ERR_DRIVER", f"{function} failed: {said}")


@functools.cache
def cuda_driver() -> _Driver:
    """The driver of this process. Raises LaunchError where there is none."""
    return _Driver()


# ---- AMD's driver ----

_HIP_LIBRARIES = ("libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5")
#: HIP's functions that have other names than CUDA's with "hip" for "cu".
_HIP_NAMES = {
    "cuMemAlloc": "hipMalloc",
    "cuMemAllocManaged": "hipMallocManaged",
    "cuMemFree": "hipFree",
    "cuCtxSynchronize": "hipDeviceSynchronize",
    "cuStreamCreate": "hipStreamCreateWithFlags",
    "cuEventCreate": "hipEventCreateWithFlags",
}


class _HipDriver:
    """libamdhip64, whose functions take what CUDA's take and are called by CUDA's names here. Each call makes
    its device the current one and brings back the one that was, as libraries do."""

    def __init__(self) -> None:
        self._dll = _first_library(_HIP_LIBRARIES, "no ROCm")
        count = ctypes.c_int()
        self._check("hipInit", 0)
        self._check("hipGetDeviceCount", ctypes.byref(count))
        #: Devices.
        self.count = count.value

    def call(self, device: int, function: str, *arguments: object) -> None:
        """Raises LaunchError with HIP's text."""
        before = ctypes.c_int()
        self._check("hipGetDevice", ctypes.byref(before))
        self.enter(device)
        try:
            self._check(function, *arguments)
        finally:
            self._dll.hipSetDevice(before)

    def enter(self, device: int) -> None:
        """Makes a device the current one of this thread."""
        if not 0 <= device < self.count:
            text = f"there is no AMD GPU {device} among {self.count}"
            raise LaunchError(5, "TILEC_ERR_DEVICE", text)
        self._check("hipSetDevice", device)

    def properties(self, device: int) -> tuple[str, str, int]:
        """Name, architecture ("gfx942") and compute units of a device."""
        room = ctypes.create_string_buffer(_HIP_PROPERTIES_ROOM)
        for function, units, arch in _HIP_PROPERTIES:
            if hasattr(self._dll, function):
                self.call(device, function, room, device)
                chip = ctypes.string_at(ctypes.addressof(room) + arch).decode()
                return (
                    room.value.decode(),
                    chip.partition(":")[0],
                    ctypes.c_int.from_buffer(room, units).value,
                )
        raise LaunchError(41, "TILEC_ERR_DRIVER_TOO_OLD", f"this ROCm is too old, it lacks {function}")

    def _check(self, function: str, *arguments: object) -> None:
        name = _hip_name(function)
        if not hasattr(self._dll, name):
            raise LaunchError(41, "TILEC_ERR_DRIVER_TOO_OLD", f"this ROCm is too old, it lacks {name}")
        result = getattr(self._dll, name)(*arguments)
        if result == 0:
            return
        about = self._dll.hipGetErrorName, self._dll.hipGetErrorString
        for each in about:
            each.restype = ctypes.c_char_p
        raise _driver_failed(name, result, *(each(result) for each in about))


#: Where two versions of hipDeviceProp_t have compute units and architecture, as
#: runtime_c/src/devices/hip/hip_api.h.
_HIP_PROPERTIES = (("hipGetDevicePropertiesR0600", 388, 1160), ("hipGetDeviceProperties", 336, 396))
_HIP_PROPERTIES_ROOM = 4096


def _hip_name(function: str) -> str:
    name = function.removesuffix("_v2")
    return _HIP_NAMES.get(name) or (f"hip{name[2:]}" if name.startswith("cu") else name)


def _first_library(names: Sequence[str], missing: str) -> ctypes.CDLL:
    """The first of these libraries that this machine has."""
    for name in names:
        with contextlib.suppress(OSError):
            return ctypes.CDLL(name)
    raise LaunchError(40, "TILEC_ERR_NO_DRIVER", f"{missing}: {', '.join(names)} cannot be opened")


@functools.cache
def hip_driver() -> _HipDriver:
    """HIP in this process. Raises LaunchError where there is none."""
    return _HipDriver()


GpuDriver: TypeAlias = "_Driver | _HipDriver"

# ---- Apple's GPUs ----

#: The Objective-C run time and Metal.
_METAL_LIBRARIES = ("/usr/lib/libobjc.A.dylib", "/System/Library/Frameworks/Metal.framework/Metal")
_METAL_FAILED = 5  # MTLCommandBufferStatusError


class _Metal:
    """The GPU that the system prefers (``device``, an MTLDevice), and a ``queue`` of commands for it."""

    def __init__(self) -> None:
        try:
            self._objc, framework = map(ctypes.CDLL, _METAL_LIBRARIES)
        except OSError as error:
            raise LaunchError(40, "TILEC_ERR_NO_DRIVER", f"no Metal: {error}") from error
        self._send = ctypes.cast(self._objc.objc_msgSend, ctypes.c_void_p).value or 0
        for function in (self._objc.sel_registerName, self._objc.objc_autoreleasePoolPush):
            function.restype = ctypes.c_void_p
        framework.MTLCreateSystemDefaultDevice.restype = ctypes.c_void_p
        self.device: int | None = framework.MTLCreateSystemDefaultDevice()
        if not self.device:
            raise LaunchError(5, "TILEC_ERR_DEVICE", "the system has no GPU for Metal")
        self.queue: int = self.tell(self.device, "newCommandQueue")

    def tell(self, it: int | None, message: str, *arguments: Any, result: Any = ctypes.c_void_p) -> Any:
        """What an object answers to a message with such arguments, objects of ctypes."""
        selector = self._objc.sel_registerName(message.encode())
        kind = ctypes.CFUNCTYPE(result, ctypes.c_void_p, ctypes.c_void_p, *map(type, arguments))
        return kind(self._send)(it, selector, *arguments)

    def text(self, it: int | None, message: str) -> str:
        """An answer that is an NSString."""
        found = self.tell(self.tell(it, message), "UTF8String", result=ctypes.c_char_p)
        return (found or b"").decode(errors="replace")

    @contextlib.contextmanager
    def pool(self) -> Iterator[None]:
        """What is made inside and nobody keeps is freed at the end."""
        pool = ctypes.c_void_p(self._objc.objc_autoreleasePoolPush())
        try:
            yield
        finally:
            self._objc.objc_autoreleasePoolPop(pool)

    def finish(self) -> None:
        """Waits for the work of the queue: commands are done in their order."""
        with self.pool():
            last = self.tell(self.queue, "commandBuffer")
            self.tell(last, "commit", result=None)
            self.tell(last, "waitUntilCompleted", result=None)
            if self.tell(last, "status", result=ctypes.c_ulong) == _METAL_FAILED:
                said = self.text(self.tell(last, "error"), "localizedDescription")
                raise LaunchError(42, "TILEC_ERR_DRIVER", f"running on the GPU failed: {said}")


@functools.cache
def metal() -> _Metal:
    """Metal in this process. Raises LaunchError where there is none."""
    return _Metal()


class MetalBuffer:
    """An MTLBuffer that the CPU sees at ``contents``, too; released with this object. ``address``: of the
    object.

    Raises:
        LaunchError: there is no Metal or no such device, or no such memory.
    """

    def __init__(self, device: int, size: int) -> None:
        self._metal, self.size = metal(), size
        if device != 0:
            text = f"there is no Apple GPU {device} among 1"
            raise LaunchError(5, "TILEC_ERR_DEVICE", text)
        how = ctypes.c_ulong(max(size, 1)), ctypes.c_ulong(0)  # MTLResourceStorageModeShared
        self.address: int = self._metal.tell(self._metal.device, "newBufferWithLength:options:", *how) or 0
        if not self.address:
            raise LaunchError(42, "TILEC_ERR_DRIVER", f"Metal makes no buffer of {size} bytes")
        self.contents: int = self._metal.tell(self.address, "contents")

    def __del__(self) -> None:
        if getattr(self, "address", 0):
            self._metal.tell(self.address, "release", result=None)


def _cuda_owner(address: int) -> int | None:
    kind, device = ctypes.c_uint(), ctypes.c_int()
    try:
        driver = cuda_driver()
        driver._check("cuPointerGetAttribute", ctypes.byref(kind), 2, ctypes.c_uint64(address))
        driver._check("cuPointerGetAttribute", ctypes.byref(device), 9, ctypes.c_uint64(address))
    except LaunchError:  # no driver, or memory that it does not know
        return None
    return device.value if kind.value == 2 else None


def _maker(like: Any, shape: Sequence[int], dtype: str) -> Callable[[], Any]:
    """What makes uninitialised arrays of the kind and on the device of ``like``; of NumPy for other kinds and
    for None."""
    if hasattr(like, "data_ptr"):
        torch = sys.modules["torch"]
        return functools.partial(torch.empty, tuple(shape), dtype=getattr(torch, dtype), device=like.device)
    if _is_cupy(like):
        return functools.partial(_cupy_empty, like.device, tuple(shape), dtype)
    if _dlpack_device(like)[0] not in _CPU_LIKE:
        raise TypeError("outputs on a device can be left out only with torch or CuPy arrays; pass them")
    try:
        import numpy
    except ImportError:
        raise TypeError("outputs can be left out only with NumPy or torch installed; pass them") from None
    is_extended = dtype in ("bfloat16", "tfloat32", "int4", "uint4") or dtype.startswith(("float8", "float4"))
    named = _extended_dtype(dtype) if is_extended else dtype
    return functools.partial(numpy.empty, tuple(shape), dtype=numpy.dtype(named))


def _cupy_empty(device: Any, shape: tuple[int, ...], dtype: str) -> Any:
    with device:
        return sys.modules["cupy"].empty(shape, dtype=dtype)


def _extended_dtype(dtype: str) -> Any:
    if dtype == "tfloat32":
        return "float32"
    try:
        import ml_dtypes
    except ImportError:
        raise TypeError(f"a NumPy array of {dtype} needs the ml_dtypes package; pass the output") from None
    return getattr(ml_dtypes, dtype)


def default_of(param: Mapping[str, Any]) -> Any:
    """A scalar's default; texts in the metadata are infinities and NaN, for which JSON has no words."""
    default = param["default"]
    return float(default) if isinstance(default, str) else default


def _param_text(param: Mapping[str, Any]) -> str:
    shape = f"[{', '.join(param['extents'])}]" if param["kind"] == "tensor" else ""
    return f"{param['name']}: {param['dtype']}{shape}"


def _call_parameters(
    params: Sequence[Mapping[str, Any]], dims: Sequence[Mapping[str, Any]]
) -> Iterator[inspect.Parameter]:
    """Of a call, as Python shows them: the kernel's in order, those at the end that may be left out with a
    default (``...`` of outputs, which the call makes then), and by name the dims that no input shows and how
    it is launched."""
    taken = {param["name"] for param in params}
    omissible = itertools.takewhile(_may_be_left_out, reversed(params))
    defaults = {each["name"]: ... if each["output"] else default_of(each) for each in omissible}
    for param in params:
        name, _, kind = _param_text(param).partition(": ")
        default = defaults.get(name, inspect.Parameter.empty)
        yield inspect.Parameter(_python_name(name), _IN_ORDER, default=default, annotation=kind)
    inputs = {number for number, param in enumerate(params) if not param["output"]}
    for dim in dims:
        shown = any(bind["source"] == "constant" or bind["param"] in inputs for bind in dim["binds"])
        if not shown and dim["name"] not in taken:
            yield inspect.Parameter(_python_name(dim["name"]), _BY_NAME, default=..., annotation="int")
    yield from (each for each in _how_to_launch() if each.name not in taken)


@functools.cache
def _how_to_launch() -> tuple[inspect.Parameter, ...]:
    """What every call takes by name."""
    every = inspect.signature(Kernel.__call__).parameters.values()
    return tuple(each for each in every if each.kind is _BY_NAME)


def _may_be_left_out(param: Mapping[str, Any]) -> bool:
    return bool(param["output"]) or param["default"] is not None


def _python_name(name: str) -> str:
    """A keyword cannot be a parameter's name: it is given in order, or by ``**``."""
    return f"{name}_" if keyword.iskeyword(name) else name


def _variant(entry: Mapping[str, Any]) -> Variant:
    guards = {name: guard["text"] for name, guard in entry["guards"].items()}
    return Variant(entry["id"], entry["target"], guards, entry["config"])
