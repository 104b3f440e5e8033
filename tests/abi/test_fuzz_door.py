"""The generic door under calls that are almost right: guided by coverage, and against an oracle in Python.

`make fuzz` runs the same for longer: FUZZ_SECONDS for libFuzzer, FUZZ_EXAMPLES for the oracle."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from doors import Door, exec_record
from fuzzing import PROGRAMS, build_libraries, check, find_libfuzzer
from hypothesis import given, settings
from hypothesis import strategies as st

from tilec.package.write import BuildReport
from tilec.portable.loader import _Arg, _DataType, _Device, _Tensor, load

pytestmark = pytest.mark.slow

# ---- libFuzzer ----


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """programs/fuzz.c with the sample library in it."""
    folder = tmp_path_factory.mktemp("fuzz")
    compiler = find_libfuzzer(folder)
    if compiler is None:
        pytest.skip("no clang with libFuzzer (Debian: clang and libclang-rt-dev)")
    # -shared-libsan: the shared library that comes with the archive may lack the sanitizer's symbols
    build_libraries(folder, (*compiler, "-fsanitize=fuzzer-no-link", "-shared-libsan"), "sample", static=True)
    package, out = folder / "sample", folder / "fuzz"
    command = [*compiler, "-fsanitize=fuzzer", "-g", "-O1", "-I", str(package / "include"), "-o", str(out)]
    check([*command, PROGRAMS / "fuzz.c", package / "lib" / "libsample.a", "-lpthread", "-ldl", "-lm"])
    return out


def run_libfuzzer(target: Path, *limits: str, timeout: float) -> None:
    """Memory is not limited: Linux counts what this process had at its peak to that of a program which it
    starts (getrusage(2), ru_maxrss), and a workspace that no machine has is for the library to refuse."""
    env = {**os.environ, "TILEC_NUM_THREADS": "1", "ASAN_OPTIONS": "allocator_may_return_null=1"}
    command = [target, *limits, "-max_len=512", "-rss_limit_mb=0", f"-artifact_prefix={target.parent}/"]
    assert "Done " in check(command, env, timeout=timeout)


def test_calls_guided_by_coverage(target: Path) -> None:
    run_libfuzzer(target, "-runs=30000", "-seed=1", timeout=120)


@pytest.mark.fuzz
def test_many_calls_guided_by_coverage(target: Path) -> None:
    seconds = int(os.environ.get("FUZZ_SECONDS", "120"))
    run_libfuzzer(target, f"-max_total_time={seconds}", timeout=seconds + 60)


# ---- the oracle: matmul(A[M, K], B[K, N], C[M, N], alpha) of tests/abi/samples.py ----

FLOAT = (2, 32, 1)
LIMIT, WIDE_LIMIT = 2146435071, 2**63 - 1 - 2**20
ODD = st.sampled_from([-1, 0, 1, 2, 3, 8, 16, 17, LIMIT, LIMIT + 1, 2**31, 2**32, 2**61, 2**63 - 1, -(2**63)])


@dataclass(frozen=True)
class Given:
    """One tensor as it is handed over; ``strides`` None means NULL."""

    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: tuple[int, int, int] = FLOAT
    device: tuple[int, int] = (1, 0)
    address: int = 0
    offset: int = 0
    rank: int = 2
    tag: int = 7

    def record(self) -> _Tensor:
        return _Tensor(
            self.address or None,
            _Device(*self.device),
            self.rank,
            _DataType(*self.dtype),
            (ctypes.c_int64 * 2)(*self.shape),
            None if self.strides is None else (ctypes.c_int64 * 2)(*self.strides),
            self.offset,
        )


@dataclass(frozen=True)
class Call:
    """Arguments of one call; ``dims`` are appended if there are any."""

    tensors: tuple[Given, Given, Given]
    dims: tuple[int, ...] = ()
    struct_size: int = field(default_factory=lambda: ctypes.sizeof(type(exec_record())))
    drop: int = 0


#: The elements of the tensors; no call runs, so that none is touched.
MEMORY = np.zeros(1 << 16, np.float32)
START = (MEMORY.ctypes.data + 63) // 64 * 64


def valid_call(m: int, n: int, k: int) -> Call:
    shapes = ((m, k), (k, n), (m, n))
    places = (START, START + (1 << 14), START + (1 << 15))
    return Call(
        tuple(Given(shape, (shape[1], 1), address=at) for shape, at in zip(shapes, places, strict=True))
    )


@st.composite
def calls(draw: st.DrawFn) -> Call:
    """A valid call with up to three changes."""
    call = valid_call(
        draw(st.integers(0, 70)), draw(st.sampled_from([16, 32, 64])), draw(st.sampled_from([8, 8, 4]))
    )
    for _ in range(draw(st.integers(0, 3))):
        call = draw(st.sampled_from(CHANGES))(draw, call)
    return call


def change_tensor(draw: st.DrawFn, call: Call, **changes: Any) -> Call:
    which = draw(st.integers(0, 2))
    tensors = list(call.tensors)
    tensors[which] = replace(tensors[which], **changes)
    return replace(call, tensors=tuple(tensors))


def change_axis(draw: st.DrawFn, call: Call) -> Call:
    """One extent or stride of one tensor."""
    which, axis, name = (
        draw(st.integers(0, 2)),
        draw(st.integers(0, 1)),
        draw(st.sampled_from(["shape", "strides"])),
    )
    tensors = list(call.tensors)
    values = list(getattr(tensors[which], name) or (1, 1))
    values[axis] = draw(ODD)
    tensors[which] = replace(tensors[which], **{name: tuple(values)})
    return replace(call, tensors=tuple(tensors))


def change_sizes(draw: st.DrawFn, call: Call) -> Call:
    """All extents at once, huge ones included: shapes that agree."""
    made = valid_call(draw(ODD), draw(ODD), draw(ODD))
    return replace(call, tensors=tuple(replace(each, strides=None) for each in made.tensors))


def change_dims(draw: st.DrawFn, call: Call) -> Call:
    sizes = (call.tensors[0].shape[0], call.tensors[1].shape[1], call.tensors[0].shape[1])
    return replace(call, dims=tuple(draw(st.one_of(st.just(size), ODD)) for size in sizes))


CHANGES = [
    change_axis,
    change_axis,
    change_sizes,
    change_dims,
    lambda draw, call: change_tensor(draw, call, strides=None),
    lambda draw, call: change_tensor(draw, call, dtype=draw(st.tuples(*[st.integers(0, 64)] * 3))),
    lambda draw, call: change_tensor(draw, call, device=(draw(st.integers(0, 4)), draw(st.integers(0, 1)))),
    lambda draw, call: change_tensor(
        draw, call, address=draw(st.sampled_from([0, START, START + 2, START + 4]))
    ),
    lambda draw, call: change_tensor(draw, call, offset=draw(st.sampled_from([0, 2, 4, 2**63, 2**64 - 4]))),
    lambda draw, call: change_tensor(draw, call, rank=draw(st.sampled_from([-1, 0, 1, 2, 3, 2**31 - 1]))),
    lambda draw, call: change_tensor(draw, call, tag=draw(st.integers(-2, 9).filter(lambda tag: tag != 7))),
    lambda draw, call: replace(call, struct_size=draw(st.sampled_from([0, 8, 71, 72, 73, 200, 2**32 - 1]))),
    lambda draw, call: replace(call, drop=draw(st.integers(1, 4))),
]


def is_valid(call: Call) -> bool:
    """What the door should say, from its documentation alone."""
    (m, k), n = call.tensors[0].shape, call.tensors[1].shape[1]
    left = len(call.dims) - call.drop
    dims = call.dims if left else ()
    if call.struct_size < 72 or left not in (0, 3) or not all(map(is_tensor, call.tensors)):
        return False
    if tuple(each.shape for each in call.tensors) != ((m, k), (k, n), (m, n)):
        return False
    if not (0 <= m <= LIMIT and 0 <= n <= WIDE_LIMIT and 0 <= k <= LIMIT) or (dims and dims != (m, n, k)):
        return False
    return not overlap(call) and served(m, n, k)


def is_tensor(each: Given) -> bool:
    empty = 0 in each.shape
    right = (each.tag, each.rank, each.dtype) == (7, 2, FLOAT) and each.device[0] in (1, 3)
    address = each.address + each.offset if each.address else 0
    placed = address < 2**64 and address % 4 == 0 and (address != 0 or empty)
    return right and placed and (empty or is_contiguous(each))


def is_contiguous(each: Given) -> bool:
    if each.strides is None:
        return True
    wanted = (each.shape[1], 1)
    return all(e == 1 or s == w for e, s, w in zip(each.shape, each.strides, wanted, strict=True))


def overlap(call: Call) -> bool:
    """Whether C shares bytes with A or B."""
    *others, out = map(span, call.tensors)
    return any(start < out[1] and out[0] < end for start, end in others if start < end and out[0] < out[1])


def span(each: Given) -> tuple[int, int]:
    """The bytes of a dense tensor; to the end of memory where their number overflows."""
    elements = each.shape[0] * each.shape[1]
    start, end = each.address + each.offset, each.address + each.offset + 4 * elements
    if not each.address or not elements:
        return start, start
    return start, end if max(end, 32 * elements) < 2**64 else 2**64 - 1


def served(m: int, n: int, k: int) -> bool:
    """MATMUL_GUARDS of tests/abi/samples.py."""
    return (n == 16 and (k == 8 or m % 4 == 0)) or n % 32 == 0 or k >= 100


@ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p
)
def run_nothing(pool: int, n: int, grain: int, task: int, closure: int) -> int:
    """A parallel_for that refuses: what reaches it was accepted."""
    return 99


@pytest.fixture(scope="module")
def door(sample: BuildReport) -> Door:
    return Door(load(sample.library), "matmul")


def accepted(door: Door, call: Call) -> bool:
    run = exec_record(parallel_for=ctypes.cast(run_nothing, ctypes.c_void_p).value, num_workers=2)
    run.struct_size = call.struct_size
    args: list[Any] = []
    keep = [each.record() for each in call.tensors]
    for each, record in zip(call.tensors, keep, strict=True):
        arg = _Arg()
        arg.tag, arg.v.tensor = each.tag, ctypes.pointer(record)
        args.append(arg)
    args += [1.0, *call.dims]
    status, text = door.launch(args[: len(args) - call.drop] if call.drop else args, run)
    assert status not in ("TILEC_ERR_INTERNAL", "unknown tilec_status")
    assert status == "TILEC_OK" or text.startswith(("matmul: ", "exec->", "sample")), (status, text)
    assert status != "TILEC_ERR_PARTIAL" or "parallel_for returned 99" in text
    return status in ("TILEC_OK", "TILEC_ERR_PARTIAL")


@settings(max_examples=300, derandomize=True)
@given(call=calls())
def test_the_door_accepts_what_the_oracle_does(door: Door, call: Call) -> None:
    assert accepted(door, call) == is_valid(call)


@pytest.mark.fuzz
@settings(max_examples=int(os.environ.get("FUZZ_EXAMPLES", "20000")))
@given(call=calls())
def test_the_door_accepts_what_the_oracle_does_for_long(door: Door, call: Call) -> None:
    assert accepted(door, call) == is_valid(call)
