"""Tensors begin anywhere where what serves all calls moves elements alone."""

from __future__ import annotations

from dataclasses import replace

from records import kernel, variant

from tilec.codegen.image import DeviceLaunch, WorkspaceSlice
from tilec.ir.guards import Guard
from tilec.package.dispatch.starts import VECTOR_BYTES, with_starts
from tilec.package.model import ParamRecord, VariantRecord

PARAMS = tuple(ParamRecord(name, "tensor", "float32", extents=("N",)) for name in ("X", "Y"))


def moving(name: str, wide: tuple[int, ...] | None, **guards: Guard) -> VariantRecord:
    """A variant for a device that moves tensors of these numbers in vectors."""
    made = variant(name, "sm_90a", **guards)
    launches = tuple(replace(each, gpu=DeviceLaunch(wide=wide)) for each in made.image.launches)
    return replace(made, image=replace(made.image, launches=launches))


def test_narrower_variants_demand_what_they_move_in_vectors() -> None:
    aligned = [moving("one", (0,), N=Guard(div=8)), moving("two", (0, 1), N=Guard(div=8))]
    found = with_starts(kernel(PARAMS, ["N"], *aligned, moving("any", (1,))))
    assert [param.begins_anywhere for param in found.params] == [True, False]
    assert [each.align for each in found.variants] == [(("X", VECTOR_BYTES),), (("X", VECTOR_BYTES),), ()]


def test_nothing_changes_where_what_serves_all_calls_moves_vectors() -> None:
    unknown = kernel(PARAMS, ["N"], moving("unknown", None))
    on_host = kernel(PARAMS, ["N"], variant("host"))
    older = kernel(PARAMS, ["N"], moving("any", ()), replace(moving("older", (0, 1)), target="sm_80"))
    assert all(with_starts(each) == each for each in (unknown, on_host, older))


def test_variants_with_workspaces_are_no_exception() -> None:
    narrow, rest = moving("one", (0,), N=Guard(div=8)), moving("any", ())
    asking = replace(rest, image=replace(rest.image, workspace=(WorkspaceSlice("rows", "4 * N"),)))
    found = with_starts(kernel(PARAMS, ["N"], narrow, asking))
    assert [each.align for each in found.variants] == [(("X", VECTOR_BYTES),), ()]
