"""The Python loader on a built library: arguments of every kind, outputs that are left out, clear errors."""

from __future__ import annotations

import inspect
import json
import shutil
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from doors import floats

import tilec
from tilec.package.write import BuildReport
from tilec.portable import loader
from tilec.portable.loader import Kernel, LaunchError, Library, LibraryError, load


@pytest.fixture(scope="module")
def library(sample: BuildReport) -> Library:
    return load(sample.out_dir)


# ---- calls ----


def test_outputs_in_place_or_returned(library: Library) -> None:
    c = np.zeros(100, np.float32)
    assert library.add(floats(100), floats(100), c) is None
    np.testing.assert_array_equal(c, library.add(floats(100), floats(100)))
    np.testing.assert_array_equal(c, library.kernels["add"](floats(100), b=floats(100)))
    d = np.empty_like(c)
    assert library.add(floats(100), floats(100), c=d) is None
    np.testing.assert_array_equal(c, d)


def test_defaults_and_keywords(library: Library) -> None:
    a, b = floats(5, 8), floats(8, 16)
    np.testing.assert_allclose(library.matmul(a, b), a @ b)
    np.testing.assert_allclose(library.matmul(a, b, 2.0), 2 * a @ b)
    np.testing.assert_allclose(library.matmul(a, b, alpha=np.float32(2)), 2 * a @ b)
    c = np.empty((5, 16), np.float32)
    library.matmul(a, b, c, 0.5)
    np.testing.assert_allclose(c, 0.5 * a @ b)


def test_torch_in_torch_out(library: Library) -> None:
    torch = pytest.importorskip("torch")
    c = library.add(torch.ones(5), torch.ones(5))
    assert isinstance(c, torch.Tensor)
    assert c.tolist() == [2.0] * 5


def test_a_prepared_call_runs_on_its_arrays_again_and_again(library: Library) -> None:
    x, y = floats(300, 4) + 1, np.zeros((300, 4), np.float32)
    call = library.normalize.prepare(x, y, num_workers=2)
    for scale in (1, 3):
        x *= scale
        x[:, 0] += scale
        call()
        np.testing.assert_allclose(y, x / x.sum(1, keepdims=True), rtol=1e-5)
    inner = library.add.prepare(floats(4), floats(4), y[0])  # whose inputs nobody else holds
    inner()
    assert y[0].tolist() == [0, 2, 4, 6]


def test_a_prepared_call_needs_its_outputs(library: Library) -> None:
    with pytest.raises(TypeError, match="outputs cannot be left out"):
        library.add.prepare(floats(5), floats(5))


class OnlyDLPack:
    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> object:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


def test_anything_with_dlpack(library: Library) -> None:
    c = np.zeros(5, np.float32)
    library.add(OnlyDLPack(floats(5)), floats(5), OnlyDLPack(c))
    np.testing.assert_array_equal(c, 2 * floats(5))


def test_zero_size(library: Library) -> None:
    assert library.add(floats(0), floats(0)).shape == (0,)


def test_views_with_row_strides_and_workspace(library: Library) -> None:
    for rows in (3, 1000, 4):
        x = floats(rows, 9)[:, 1:6]
        np.testing.assert_allclose(library.normalize(x), x / x.sum(1, keepdims=True), rtol=1e-5)


def test_threads_have_workspaces_of_their_own(library: Library) -> None:
    failures: list[int] = []

    def work(seed: int) -> None:
        x = np.random.default_rng(seed).random((200, 7), dtype=np.float32) + 1
        for _ in range(30):
            if not np.allclose(library.normalize(x), x / x.sum(1, keepdims=True), rtol=1e-5):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.parametrize("count", [-3, 1025])
def test_a_wrong_number_of_workers_is_shown_as_it_was_given(library: Library, count: int) -> None:
    a = np.ones(4, np.float32)
    with pytest.raises(LaunchError, match=f"num_workers = {count}; it is a number of threads"):
        library.add(a, a, num_workers=count)


def test_serial_and_num_workers(library: Library) -> None:
    for options in ({"serial": True}, {"num_workers": 1}, {"num_workers": 3}):
        np.testing.assert_array_equal(library.add(floats(5000), floats(5000), **options), 2 * floats(5000))


def test_scalars_of_every_kind(library: Library) -> None:
    x = np.array([3, -4], np.int8)
    y = library.mixed(x, n=np.int64(4), flag=np.True_, shift=10, scale=2)
    assert y.dtype == np.int32
    assert y.tolist() == [26, 26, 12, 12]


# ---- errors ----


@pytest.mark.parametrize(
    ("args", "named", "problem"),
    [
        ((), {}, "argument 'a' is missing; it takes a: float32[N], b: float32[N], c: float32[N]"),
        ((1, 2, 3, 4), {}, "takes 3 arguments, got 4"),
        ((floats(3), "text"), {}, "b must be an array"),
        ((floats(3), floats(3)), {"a": floats(3)}, "'a' was given twice"),
        ((floats(3), floats(3)), {"d": floats(3)}, "'d' is no parameter"),
    ],
)
def test_wrong_python_arguments(
    library: Library, args: tuple[Any, ...], named: dict[str, Any], problem: str
) -> None:
    with pytest.raises(TypeError) as caught:
        library.add(*args, **named)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("value", "problem"),
    [(each, "shift must be an int") for each in (1.5, "4", None)]
    + [(2**63, r"shift = \d+ does not fit int")],
)
def test_an_int_is_never_cut(library: Library, value: object, problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        library.mixed(np.zeros(2, np.int8), n=4, flag=True, shift=value, scale=1.0)


@pytest.mark.parametrize("value", ["4", b"4", None])
def test_a_text_is_no_float(library: Library, value: object) -> None:
    with pytest.raises(TypeError, match="scale must be a number"):
        library.mixed(np.zeros(2, np.int8), n=4, flag=True, shift=1, scale=value)


@pytest.mark.parametrize(("a", "axes"), [(floats(6), "1 axis"), (np.zeros((), np.float32), "0 axes")])
def test_too_few_axes_are_named_where_outputs_are_left_out(
    library: Library, a: np.ndarray, axes: str
) -> None:
    with pytest.raises(LaunchError, match=f"A has {axes}, expected 2") as caught:
        library.matmul(a, floats(8, 16))
    assert caught.value.name == "TILEC_ERR_SHAPE"


def test_errors_are_public_names() -> None:
    assert (tilec.LaunchError, tilec.LibraryError) == (LaunchError, LibraryError)


def test_launch_errors_carry_their_status(library: Library) -> None:
    with pytest.raises(LaunchError, match="b axis 0 has extent 4, expected N = 3") as caught:
        library.add(floats(3), floats(4), floats(3))
    assert (caught.value.status, caught.value.name) == (3, "TILEC_ERR_SHAPE")
    with pytest.raises(ValueError, match="b is float64, expected float32"):
        library.add(floats(3), floats(3).astype(np.float64))
    with pytest.raises(LaunchError, match="stride 2"):
        library.add(floats(6)[::2], floats(3))
    with pytest.raises(LaunchError, match="no variant admits M = 5, N = 15, K = 8"):
        library.matmul(floats(5, 8), floats(8, 15))


def test_a_read_only_output_is_refused(library: Library) -> None:
    c = np.zeros(3, np.float32)
    c.flags.writeable = False
    with pytest.raises(LaunchError, match="read-only"):
        library.add(floats(3), floats(3), c)


def test_tensors_without_memory_are_refused_by_name(library: Library) -> None:
    torch = pytest.importorskip("torch")
    dense, odd = torch.ones(3), (torch.ones(3, device="meta"), torch.ones(3).to_sparse())
    for tensor in odd:
        with pytest.raises(TypeError, match=r"^b has no elements in memory .*pass a dense tensor"):
            library.add(dense, tensor)


def test_a_view_that_torch_has_yet_to_negate_is_refused(library: Library) -> None:
    torch = pytest.importorskip("torch")
    ones = torch.ones(3)
    library.add(ones, ones)
    imaginary = torch.complex(ones, ones)[:1].conj().imag
    assert imaginary.tolist() == [-1]
    same = torch.ones(2)[::2]
    assert same.stride() == imaginary.stride()
    library.add(same, ones[:1])  # calls of these shapes are kept
    library.add(ones[:1], same)
    for call in (lambda: library.add(imaginary, ones[:1]), lambda: library.add(ones[:1], imaginary)):
        with pytest.raises(LaunchError, match=r"resolve_neg\(\)"):
            call()


def test_select_wants_every_dim(library: Library) -> None:
    with pytest.raises(TypeError, match="has the dims M, N, K, got M"):
        library.kernels["matmul"].select(M=1)
    with pytest.raises(LaunchError) as caught:
        library.kernels["add"].select(device="cuda", N=1)
    assert caught.value.name == "TILEC_ERR_NO_ARCH"
    assert "has no code for devices of DLPack's type 2; it has some for " in str(caught.value)
    with pytest.raises(TypeError, match="the device is a text"):
        library.kernels["add"].select(floats(3), N=1)
    with pytest.raises(ValueError, match="unknown device"):
        library.kernels["add"].select(device="tpu", N=1)


HOW = (
    "serial: 'bool' = False, num_workers: 'int' = 0, variant: 'int | None' = None, "
    "stream: 'int | None' = None"
)


@pytest.mark.parametrize(
    ("kernel", "params"),
    [
        ("add", "a: 'float32[N]', b: 'float32[N]', c: 'float32[N]' = Ellipsis"),
        (
            "matmul",
            "A: 'float32[M, K]', B: 'float32[K, N]', C: 'float32[M, N]' = Ellipsis, alpha: 'float16' = 1.0",
        ),
        (
            "mixed",
            "x: 'int8[n // 2]', y: 'int32[n]', n: 'int32', flag: 'bool', shift: 'int64', scale: 'float64'",
        ),
    ],
)
def test_python_shows_the_parameters_of_each_kernel(library: Library, kernel: str, params: str) -> None:
    found = library.kernels[kernel]
    assert str(inspect.signature(found)) == f"({params}, *, {HOW})"
    assert inspect.getdoc(found) == found.doc
    with pytest.raises(TypeError, match="missing a required argument"):
        inspect.signature(found).bind(1)


def test_dims_that_no_input_shows_are_parameters_by_name(library: Library) -> None:
    (entry,) = (each for each in library.metadata["kernels"] if each["name"] == "add")
    hidden = {**entry, "dims": [{"name": "lanes", "binds": []}]}
    shown = inspect.signature(Kernel(library, hidden)).parameters["lanes"]
    assert (shown.kind, shown.annotation) == (inspect.Parameter.KEYWORD_ONLY, "int")


def test_unknown_kernels_are_named(library: Library) -> None:
    with pytest.raises(AttributeError, match="no kernel 'sub'; it has add, matmul, mixed, normalize"):
        library.sub  # noqa: B018
    with pytest.raises(KeyError, match="no kernel 'sub'; it has add, matmul, mixed, normalize"):
        library.kernels["sub"]
    assert library.kernels.get("sub") is None


# ---- files ----


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is no shared library"),
        (b"#!/bin/sh\n" + b" " * 100, "is no shared library"),
        (b"\x7fELF\x02\x01", "is no shared library"),
        (
            b"\x7fELF\x02\x01\x01" + bytes(11) + struct.pack("<H", 21) + bytes(60),
            "is for machine 21, this machine is",
        ),
    ],
)
def test_files_that_are_no_libraries(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "lib.so"
    path.write_bytes(content)
    with pytest.raises(LibraryError, match=problem):
        load(path)


def test_missing_files_and_folders(tmp_path: Path, sample: BuildReport) -> None:
    for name in ("lib.so", "dist/engine"):
        with pytest.raises(
            LibraryError, match=f"{name} is not there; pass the folder that `tilec build` wrote"
        ):
            load(tmp_path / name)
    with pytest.raises(LibraryError, match="holds no library"):
        load(tmp_path)
    for name in ("liba.so", "libb.so"):
        shutil.copy(sample.library, tmp_path / name)
    with pytest.raises(LibraryError, match="holds 2 libraries"):
        load(tmp_path)


def test_a_truncated_library(tmp_path: Path, sample: BuildReport) -> None:
    path = tmp_path / "libcut.so"
    path.write_bytes(sample.library.read_bytes()[:4096])
    with pytest.raises(LibraryError, match="is cut off: 4096 bytes of"):
        load(path)


def test_a_shared_library_of_others() -> None:
    import _ctypes

    with pytest.raises(LibraryError, match="none that tilec built"):
        load(_ctypes.__file__)


# ---- alone ----

ALONE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from loader import load
kernel = load(sys.argv[2]).kernels["add"]
before = {"tilec", "numpy", "torch", "tvm"} & set(sys.modules)
import ctypes
class Array:
    def __init__(self, n):
        self.memory = (ctypes.c_float * n)(*range(n))
        address = ctypes.addressof(self.memory)
        where = {"data": (address, False), "strides": None}
        self.__array_interface__ = {"shape": (n,), "typestr": "<f4", **where}
a, b, c = Array(5), Array(5), Array(5)
kernel(a, b, c)
import array
out = array.array("f", bytes(20))
kernel(array.array("f", range(5)), (ctypes.c_float * 5)(*range(5)), out)
print(json.dumps([sorted(before), list(c.memory), list(out)]))
"""


def test_the_loader_needs_nothing_but_itself(tmp_path: Path, sample: BuildReport) -> None:
    shutil.copy(loader.__file__, tmp_path / "loader.py")
    command = [sys.executable, "-I", "-S", "-c", ALONE, str(tmp_path), str(sample.library)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [[], [0.0, 2.0, 4.0, 6.0, 8.0], [0.0, 2.0, 4.0, 6.0, 8.0]]
