"""Index arithmetic beyond 2^31 and 2^32, on all roads. Tensors lie in memory of which few pages are used."""

from __future__ import annotations

import mmap
import re

import numpy as np
import pytest
from compiled import Library

from tilec.backends.cuda.codegen.images import source
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.emulate import EmulatedKernel
from tilec.ir.interp import interpreter
from tilec.targets import parse_target

SIDE = 65536
FAR = SIDE * SIDE

#: Kernels of uint8 matrices with SIDE rows of SIDE elements, in which few blocks touch few elements.
TEXTS = {
    "flat": """
A = tensor(uint8, (M * N,), ("M * N",), access="inout")
with launch((M * N + 1073741823) // 1073741824, threads=(32, 1, 1)) as (bx,):
    for i in parallel(2):
        p = bx * 1073741824 + i
        if p < M * N:
            A[p] = uint8(7)
""",
    "last": """
A = tensor(uint8, (M * N,), ("M * N",), access="inout")
with launch(1, threads=(32, 1, 1)) as (bx,):
    for i in parallel(8):
        A[M * N - 8 + i] = A[i] + cast(uint8, i + 1)
""",
    "rows": """
A = tensor(uint8, (M, N), ("M", "N"), access="inout")
with launch((M + 16383) // 16384, threads=(32, 1, 1)) as (bx,):
    for i in parallel(4):
        A[bx * 16384 + i, N - 1 - i] = uint8(9)
""",
    "decoded": """
A = tensor(uint8, (M, N), ("M", "N"), access="inout")
with launch((M * N + 1073741823) // 1073741824, threads=(32, 1, 1)) as (bx,):
    for i in parallel(4):
        p = bx * 1073741824 + i * 65537
        A[p // N, p % N] = cast(uint8, p // 1073741824 + 1)
""",
    "tile": """
A = tensor(uint8, (M * N,), ("M * N",), access="inout")
with launch(4, threads=(32, 1, 1)) as (bx,):
    s = alloc(uint8, (64,), "shared.dyn")
    fill(s[0:+64], uint8(3))
    copy(s[0:+64], A[(bx + 1) * M * (N // 4) - 64:+64])
""",
    "loop": """
A = tensor(uint8, (M * N,), ("M * N",), access="inout")
with launch(1, threads=(32, 1, 1)) as (bx,):
    for q in serial(M * N - 3, M * N, 1):
        for i in parallel(1):
            A[q - i] = uint8(5)
""",
    "strided": """
{strided}
with launch(2, threads=(32, 1, 1)) as (bx,):
    for i in parallel(4):
        A[bx, M - 1 - i, i] = uint8(4)
""",
    "looked_up": """
A = tensor(uint8, (M * N,), ("M * N",), access="inout")
X = tensor(int32, (4,), ("4",), access="in")
with launch(1, threads=(32, 1, 1)) as (bx,):
    for i in parallel(4):
        A[X[i] * 65536 + i] = uint8(6)
        A[X[i] * N + 8 + i] = uint8(8)
""",
    "values": """
Y = tensor(int32, (2,), ("2",), access="out")
Z = tensor(int64, (2,), ("2",), access="out")
F = tensor(float32, (1,), ("1",), access="out")
with launch(1, threads=(32, 1, 1)) as (bx,):
    for i in parallel(1):
        Y[0] = M * N + 3
        Y[1] = M * N // 65536
        Z[0] = cast(int64, M * N + i)
        Z[1] = cast(int64, max(M * N, 5) - M)
        F[0] = cast(float32, M * N)
""",
    "conditions": """
Y = tensor(int32, (8, 4), ("8", "4"), access="inout")
with launch((M * N + 1073741823) // 1073741824, threads=(32, 1, 1)) as (bx,):
    for i in parallel(4):
        p = bx * 1073741824 + i * 65537
        if p < M * N:
            Y[bx, i] = p // N + p % N
        if p + M * (N - 1) < M * N:
            Y[bx + 4, i] = 1
""",
    "outside": """
A = tensor(uint8, (M, 16), ("M", "16"), access="inout")
p = scalar(int32)
with launch(1, threads=(32, 1, 1)) as (bx,):
    for i in parallel(8):
        A[p * 65536 + i, i] = uint8(1)
        A[i, p * 16 + i] = uint8(2)
""",
}
HEAD = 'kernel("{name}")\nM = dim(int32)\nN = dim(int32)\n'
#: A tensor whose first stride is a product.
STRIDED = (
    'A = tensor(uint8, (2, M, 4), ("2", "M", "4"), access="inout", '
    'strides=(M * (N // 2), N // 2, 1), stride_texts=("s", "t", "1"))'
)
KERNELS = {
    name: HEAD.format(name=name) + text.strip().replace("{strided}", STRIDED) + "\n"
    for name, text in TEXTS.items()
}
#: What the tests below write, by kernel: places in the flat memory and the value there.
WANTED = {
    "flat": {p + i: 7 for p in range(0, FAR, 1 << 30) for i in range(2)},
    "last": {FAR - 8 + i: i + 1 for i in range(8)},
    "rows": {(row + i) * SIDE + SIDE - 1 - i: 9 for row in range(0, SIDE, 16384) for i in range(4)},
    "decoded": {(b << 30) + i * 65537: b + 1 for b in range(4) for i in range(4)},
    "tile": {(b + 1) * (FAR // 4) - 64 + i: 3 for b in range(4) for i in range(64)},
    "loop": {FAR - 1 - i: 5 for i in range(3)},
    "strided": {b * FAR // 2 + (SIDE - 1 - i) * SIDE // 2 + i: 4 for b in range(2) for i in range(4)},
    "looked_up": {x * SIDE + i: 6 for i, x in enumerate((0, 32768, 65535, 40000))}
    | {x * SIDE + 8 + i: 8 for i, x in enumerate((0, 32768, 65535, 40000))},
}
TABLE = np.array([0, 32768, 65535, 40000], np.int32)


@pytest.fixture(scope="module")
def library():
    return Library(KERNELS, "x86-64-v3")


@pytest.fixture
def memory():
    """FAR bytes of which those are there that somebody touches."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
    return np.frombuffer(mmap.mmap(-1, FAR, flags=flags), np.uint8)


def run(road, library, name, given, dims=None) -> None:
    """One of the roads of a kernel; those of GPUs copy what they are given."""
    dims = {"M": SIDE, "N": SIDE} if dims is None else dims
    if road == "interpreter":
        interpreter.run(library.kernels[name], given, dims)
    elif road == "cpu":
        library.run(name, given, dims)
    else:
        EmulatedKernel(library.kernels[name], parse_target(road))(given, dims)


def shaped(name, memory):
    """The memory as the kernel's first parameter takes it."""
    if name in ("rows", "decoded"):
        return memory.reshape(SIDE, SIDE)
    if name == "strided":
        return np.lib.stride_tricks.as_strided(memory, (2, SIDE, 4), (FAR // 2, SIDE // 2, 1))
    return memory


@pytest.mark.parametrize("road", ["interpreter", "cpu"])
@pytest.mark.parametrize("name", WANTED)
def test_elements_beyond_four_billion(library, memory, name, road) -> None:
    run(road, library, name, [shaped(name, memory), *([TABLE] if name == "looked_up" else [])])
    found = {place: int(memory[place]) for place in WANTED[name]}
    assert found == WANTED[name]
    wrapped = {place % (1 << 32 - shift) for place in WANTED[name] for shift in (0, 1)} - set(WANTED[name])
    assert not [place for place in wrapped if memory[place]], "nothing where 32 bits would lead"


@pytest.mark.parametrize("road", ["interpreter", "cpu", "sm_80", "sm_90a"])
def test_conditions_beyond_four_billion(library, road) -> None:
    made = np.zeros((8, 4), np.int32)
    run(road, library, "conditions", [made])
    places = np.arange(4)[:, None] * (1 << 30) + np.arange(4) * 65537
    assert made[:4].tolist() == (places // SIDE + places % SIDE).tolist()
    assert made[4:].tolist() == (places + SIDE * (SIDE - 1) < FAR).astype(int).tolist()


@pytest.mark.parametrize("road", ["interpreter", "cpu", "sm_80", "sm_90a"])
def test_what_is_stored_has_its_own_type(library, road) -> None:
    made = [np.zeros(2, np.int32), np.zeros(2, np.int64), np.zeros(1, np.float32)]
    run(road, library, "values", made)
    assert [part.tolist() for part in made] == [[3, 65536], [1 << 32, FAR - SIDE], [float(FAR)]]


@pytest.mark.parametrize("road", ["interpreter", "cpu", "sm_80"])
def test_products_of_arguments_lead_outside(library, road) -> None:
    made = np.zeros((64, 16), np.uint8)
    for p in (1, 65536, 1 << 28, (1 << 31) - 1, -(1 << 31), -65536):
        run(road, library, "outside", [made, p], {"M": 64, "N": 1})
        assert not made.any(), p


@pytest.mark.parametrize("name", ["flat", "rows", "decoded", "strided", "looked_up"])
def test_addresses_of_cuda_code_have_64_bits(library, name) -> None:
    target = parse_target("sm_80")
    code = source(to_tir(lower(library.kernels[name], target), target), target, "k")
    indices = re.findall(r"A_ptr\[(.*?)\] =", code)
    assert indices
    for index in indices:
        assert "(int64_t)" in index
        assert not re.search(r"\(int64_t\)\(+[^()]* [*] ", index), "no product is made before it is widened"
