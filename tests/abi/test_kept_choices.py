"""What a thread keeps of its choices by cost changes none of them."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Iterator

import pytest
from samples import image, scalar

from tilec.codegen.image import WorkspaceSlice
from tilec.costs import cheapest
from tilec.package.model import DimRecord, KernelRecord, PackageSpec, VariantRecord
from tilec.package.write import write_package
from tilec.portable.loader import Library, _Device, _Exec, load
from tilec.targets import native_host, native_target

UNITS = 3
COSTS = (
    "2 + waves(ceil(M / 128) * ceil(N / 192)) * (0.7 + 0.01 * K)",
    "1.5 + waves(ceil(M / 16) * ceil(N / 64)) * (0.3 + 0.004 * K)",
    "0.25 + max(rounds(M * N) * 0.0031, min(K, 40) - N / 7)",
)
#: Kernels for calls of the same dims and with other costs, one of them with more dims than a thread keeps.
LISTS = {
    "forth": ("MNK", COSTS),
    "back": ("MNK", COSTS[::-1]),
    "many": ("MNKPQ", (*COSTS[:2], "P / 40 - Q / 50")),
}
_NOTHING = "void {p}_0(float s, void* scratch, long long begin, long long end) {{}}"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    """Opened where calls have `UNITS` threads."""
    spec = PackageSpec("kept", "1", native_host(), tuple(map(priced, LISTS)))
    report = write_package(spec, tmp_path_factory.mktemp("kept"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEC_NUM_THREADS", str(UNITS))
        yield load(report.library)


def priced(name: str) -> KernelRecord:
    """A kernel whose schedules the size of their workspace tells apart."""
    dims, costs = LISTS[name]
    host, target = native_host(), native_target().name
    variants = []
    for number, text in enumerate(costs):
        needed = (WorkspaceSlice("s", str(64 << number)),)
        made = image(f"{name}_{number}", _NOTHING, [("M",)], target, host, workspace=needed)
        variants.append(VariantRecord(target, (), made, config={"number": number}, cost=text))
    return KernelRecord(name, (scalar("s", "float32"),), tuple(map(DimRecord, dims)), tuple(variants))


def needed(library: Library, name: str, dims: dict[str, int], workers: int) -> int:
    """The workspace of a call on so many threads."""
    run = _Exec(struct_size=ctypes.sizeof(_Exec), num_workers=workers, device=_Device(1, 0))
    given, size = (ctypes.c_int64 * len(dims))(*dims.values()), ctypes.c_size_t()
    table, handle = library._table, library.kernels[name]._handle
    assert table.workspace_size(handle, None, ctypes.byref(run), given, ctypes.byref(size)) == 0
    return size.value


@pytest.mark.parametrize("values", [4, 40], ids=["few shapes", "more than are kept"])
def test_what_was_chosen_before_changes_no_choice(library: Library, values: int) -> None:
    rng = random.Random(values)
    sizes = [int(2 ** rng.uniform(0, 12)) for _ in range(values)]
    taken = set()
    for _ in range(3000):
        name, units = rng.choice(list(LISTS)), rng.randint(1, UNITS)
        names, costs = LISTS[name]
        dims = {dim: rng.choice(sizes) for dim in names}
        choice = cheapest(costs, dims, units)
        assert needed(library, name, dims, units) == 64 << choice
        taken.add((name, choice))
    assert len(taken) > len(LISTS)
