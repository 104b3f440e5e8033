"""Calls that repeat an earlier one with other arrays: the same results and errors, nothing kept alive."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy as np
import pytest

from tilec.package.write import BuildReport
from tilec.portable.loader import LaunchError, Library, _KeptCalls, load


@pytest.fixture(scope="module")
def library(sample: BuildReport) -> Library:
    return load(sample.out_dir)


def of(value: float, *shape: int) -> np.ndarray:
    return np.full(shape, value, np.float32)


def read_only(length: int) -> np.ndarray:
    made = of(1, length)
    made.flags.writeable = False
    return made


def kept(library: Library, kernel: str) -> int:
    return sum(map(len, library.kernels[kernel]._kept._calls.values()))


def test_each_call_has_its_own_arrays_scalars_and_outputs(sample: BuildReport) -> None:
    library = load(sample.out_dir)
    b = of(1.0, 8, 16)
    found = [
        library.matmul(of(a, 5, 8), b, alpha=alpha) for a, alpha in ((1, 1.0), (2, 3), (4, np.float32(2)))
    ]
    assert [each[4, 15] for each in found] == [8, 48, 64]
    assert kept(library, "matmul") == 1
    assert library.matmul(of(1, 5, 8), b)[0, 0] == 8  # the default, not the last one


def test_strides_types_and_sizes_tell_calls_apart(library: Library) -> None:
    base = np.arange(24, dtype=np.float32).reshape(4, 6) + 1
    for x in (base, base[:, :3], base[:, 3:], base[:2], base.copy()):
        np.testing.assert_allclose(library.normalize(x), x / x.sum(1, keepdims=True), rtol=1e-6)
    pairs = np.array([3, -4, 5], np.int8)
    for n in (4, 2, np.int64(6), 4):
        found = library.mixed(pairs[: n // 2], n=n, flag=True, shift=10, scale=2)
        assert found.tolist() == [26, 26, 12, 12, 30, 30][:n]
    with pytest.raises(LaunchError, match="x axis 0 has extent 2, expected n // 2 = 3"):
        library.mixed(pairs[:2], n=6, flag=True, shift=10, scale=2)


def test_tensors_of_torch(library: Library) -> None:
    torch = pytest.importorskip("torch")
    for a in (1.0, 2.0, 3.0):
        given, out = torch.full((70,), a), torch.empty(70)
        assert torch.equal(library.add(given, torch.nn.Parameter(given)), 2 * given)
        assert library.add(given, given, out) is None
        assert torch.equal(out, 2 * given)
    assert isinstance(library.add(of(1, 70), of(1, 70)), np.ndarray)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((of(1, 3), of(1, 4)), {}),
        ((of(1, 3), of(1, 3).astype(np.float64)), {}),
        ((of(1, 6)[::2], of(1, 3)), {}),
        ((of(1, 3), of(1, 3), read_only(3)), {}),
        ((of(1, 3), "text"), {}),
        ((of(1, 3),), {}),
        ((of(1, 3), of(1, 3)), {"num_workers": -1}),
        ((of(1, 3), of(1, 3)), {"num_workers": 0.0}),
        ((of(1, 3), of(1, 3)), {"variant": 77}),
        ((of(1, 3), of(1, 3)), {"stream": "text"}),
    ],
)
def test_errors_are_those_of_first_calls(
    sample: BuildReport, library: Library, arguments: tuple[Any, ...], named: dict[str, Any]
) -> None:
    library.add(of(1, 3), of(1, 3))
    library.add(of(1, 3), of(1, 3), of(1, 3))
    said = []
    for each in (load(sample.out_dir), library, library):
        with pytest.raises((TypeError, LaunchError)) as caught:
            each.add(*arguments, **named)
        said.append((caught.type, str(caught.value)))
    assert said[0] == said[1] == said[2]


def test_a_scalar_that_is_none_is_refused_by_a_kept_call(library: Library) -> None:
    x = np.zeros(2, np.int8)
    assert library.mixed(x, n=4, flag=True, shift=1, scale=1.0).tolist() == [1] * 4
    with pytest.raises(TypeError, match="shift must be an int, got float"):
        library.mixed(x, n=4, flag=True, shift=1.5, scale=1.0)
    with pytest.raises(TypeError, match="scale must be a number, got str"):
        library.mixed(x, n=4, flag=True, shift=1, scale="1")


def test_a_call_inside_of_a_call_takes_another(library: Library) -> None:
    b = of(1.0, 8, 16)

    class Calls:
        def __float__(self) -> float:
            return float(library.matmul(of(2, 5, 8), b, alpha=1.0)[0, 0])

    library.matmul(of(1, 5, 8), b, alpha=1.0)
    assert library.matmul(of(1, 5, 8), b, alpha=Calls())[0, 0] == 8 * 16


def test_threads_make_the_same_call_with_arrays_of_their_own(library: Library) -> None:
    wrong = []

    def work(value: int) -> None:
        wrong.extend(value for _ in range(300) if (library.add(of(value, 65), of(1, 65)) != value + 1).any())

    threads = [threading.Thread(target=work, args=(value,)) for value in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert wrong == []


def test_arrays_are_let_go(library: Library) -> None:
    for _ in range(2):
        arrays = [of(1, 7), of(1, 7)]
        arrays.append(library.add(*arrays))
        held = [weakref.ref(each) for each in arrays]
        arrays.clear()
        assert [each() for each in held] == [None] * 3


def test_kept_calls_are_few(sample: BuildReport) -> None:
    library = load(sample.out_dir)
    for length in range(1, _KeptCalls.MOST_KEYS + 20):
        library.add(of(1, length), of(1, length))
    assert 0 < kept(library, "add") <= _KeptCalls.MOST_KEYS
