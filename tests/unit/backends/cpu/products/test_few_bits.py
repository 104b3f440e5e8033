"""Products of few rows with weights of 4 bits, compiled for this machine, beside their references."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from breadth import parametrized
from compiled import Library
from memory_ends import at_the_end
from tile_unit import as_here, emulated_tiles

from tilec.backends.cpu.codegen.objects import assembly
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.guards import Guard
from tilec.ir.nodes import Kernel
from tilec.language.frontend.elaborate import elaborate, load_entry
from tilec.targets import native_target, parse_target

sys.path.insert(0, str(Path(__file__).resolve().parents[5] / "examples" / "kernels"))
import gguf_blocks
import quantised_groups
import quantised_packed

KERNELS = Path(gguf_blocks.__file__).parent
#: Factory, arguments, reference and inputs; steps of 32, of 64, of 128, and of 32 in blocks of 256.
FORMS: dict[str, tuple[str, dict[str, Any], Any, Any]] = {
    "q4_0": (
        "gguf_blocks.py:linear_gguf",
        {"form": "q4_0"},
        gguf_blocks.linear_q4_0_reference,
        gguf_blocks.linear_q4_0_inputs,
    ),
    "q4_k": (
        "gguf_blocks.py:linear_gguf",
        {"form": "q4_k"},
        gguf_blocks.linear_q4_k_reference,
        gguf_blocks.linear_q4_k_inputs,
    ),
    **{
        f"w4a{bits}_g{group}": (
            "quantised_groups.py:linear_groups",
            {"group": group, "activations": bits},
            getattr(quantised_groups, f"linear_w4a{bits}_reference"),
            lambda dims, rng, group=group: quantised_groups.linear_groups_inputs(dims, rng, group),
        )
        for group, bits in ((32, 16), (64, 8), (128, 8))
    },
}


@pytest.mark.skipif(native_target().arch != "x86_64", reason="instructions of x86")
@pytest.mark.parametrize("rows", [1, 3])
@parametrized("form", FORMS, fast=("q4_k",))
def test_few_rows_times_weights_of_four_bits(form: str, rows: int) -> None:
    """11 rows of weights and a K that fills no step of the kernel; ``rows`` at a time, and one beside."""
    source, args, reference, inputs = FORMS[form]
    config = {"bM": rows, "bN": 8, "bK": 2048}
    dims = {"M": Guard(), "N": Guard(), "K": Guard(div=256)}
    kernel = elaborate(load_entry(source, KERNELS), name="k", dims=dims, args=args, config=config)
    built = Library({"k": kernel}, native_target())
    shape = {"M": rows + 1 if rows > 1 else 1, "N": 11, "K": 2304}
    given = inputs(shape, np.random.default_rng(5))
    given = [value if value.dtype.kind in "iu" else value.astype(np.float16) for value in given]
    result = np.full((shape["M"], shape["N"]), np.nan, np.float16)
    built.run("k", [*given, result], shape)
    np.testing.assert_allclose(result.astype(np.float32), reference(*given), rtol=4e-3, atol=4e-3)


def _several_steps() -> Kernel:
    """One row times ``q4_0``, whose 16 blocks of 18 bytes of a trip are five vectors."""
    source, args, _, _ = FORMS["q4_0"]
    dims = {"M": Guard(eq=1), "N": Guard(), "K": Guard(div=128)}
    config = {"bM": 1, "bN": 8, "bK": 2048, "together": 4}
    return elaborate(load_entry(source, KERNELS), name="k", dims=dims, args=args, config=config)


def test_blocks_of_several_steps_are_read_by_whole_vectors() -> None:
    """Four steps and their scales take their own of five vectors; the end of the fifth is read once more."""
    target = parse_target("x86-64-v4+vnni")
    code = assembly(to_tir(lower(_several_steps(), target), target), target, "k")
    (loop,) = (part for part in re.split(r"\n\.L\w+:", code) if part.count("vpdpbusd") == 16)
    assert len(re.findall(r"\t(?:vmovdqu64\t\S*\(|vpermt2w\t\S*\()", loop)) <= 6
    assert "vpermt2d" not in loop
    assert "vpinsrw" not in loop


@pytest.mark.skipif(native_target().arch != "x86_64", reason="instructions of x86")
@pytest.mark.parametrize("k", [512, 640, 2304])
def test_blocks_of_several_steps_end_with_their_tensor(k: int) -> None:
    """Rows of whole steps, and of some that are left."""
    built = Library({"k": _several_steps()}, native_target())
    _, _, reference, inputs = FORMS["q4_0"]
    a, w = inputs({"M": 1, "N": 3, "K": k}, np.random.default_rng(5))
    a, result = a.astype(np.float16), np.full((1, 3), np.nan, np.float16)
    built.run("k", [a, at_the_end(w), result], {"M": 1, "N": 3, "K": k})
    np.testing.assert_allclose(result.astype(np.float32), reference(a, w), rtol=4e-3, atol=4e-3)


def _many_rows(group: int) -> dict[str, Any]:
    """The kernel of many rows by bytes, 16 and 64 of them at a time."""
    dims = {"M": Guard(), "N": Guard(), "K": Guard(div=128)}
    source = load_entry("quantised_groups.py:linear_groups", KERNELS)
    args = {"group": group, "activations": 8}
    return {
        f"rows_{rows}": elaborate(
            source,
            name="k",
            dims=dims,
            args=args,
            config={"bM": rows, "bN": 64, "bK": 128, "unpacked": "int8"},
        )
        for rows in (16, 64)
    }


@pytest.mark.skipif(native_target().arch != "x86_64", reason="instructions of x86")
@parametrized(
    ("unit", "group"), [("vectors", 32), ("vectors", 128), ("tiles", 32), ("tiles", 64)], fast=[("tiles", 32)]
)
def test_many_rows_are_multiplied_as_bytes(unit: str, group: int) -> None:
    """Tiles of weights that fill their tiles and that do not, by the vectors of this machine and by the
    emulated matrix unit: as exact as few rows, whose activations are rounded alike."""
    kernels = _many_rows(group)
    if unit == "tiles":
        with emulated_tiles():
            built = Library(kernels, as_here(parse_target("x86-64-v4+vnni+avx512bf16+amx")))
        assert all(image.launches[1].products == ("tdpbusd",) for image in built.images.values())
    else:
        built = Library(kernels, native_target())
    rng = np.random.default_rng(5)
    for m, n, k in ((16, 64, 256), (75, 70, 384)):
        given = quantised_groups.linear_groups_inputs({"M": m, "N": n, "K": k}, rng, group)
        given = [value if value.dtype.kind in "iu" else value.astype(np.float16) for value in given]
        expected = quantised_groups.linear_w4a8_reference(*given)
        for name in kernels:
            result = np.full((m, n), np.nan, np.float16)
            built.run(name, [*given, result], {"M": m, "N": n, "K": k})
            np.testing.assert_allclose(result.astype(np.float32), expected, rtol=4e-3, atol=4e-3)


#: Forms whose many rows of 16-bit activations are multiplied as bytes: those above, and words of 128.
BY_BYTES = {
    **{name: FORMS[name] for name in ("q4_0", "q4_k", "w4a16_g32")},
    **{
        f"packed_{bits}": (
            "quantised_packed.py:linear_packed",
            {"bits": bits},
            quantised_packed.linear_packed_reference,
            lambda dims, rng, bits=bits: quantised_packed.linear_packed_inputs(dims, rng, bits),
        )
        for bits in (4, 8)
    },
}


@pytest.mark.skipif(native_target().arch != "x86_64", reason="instructions of x86")
@parametrized("form", BY_BYTES, fast=("q4_k", "packed_8"))
def test_activations_of_two_bytes_are_multiplied_as_bytes(form: str) -> None:
    """As exact as few rows, whose activations are rounded alike."""
    source, args, reference, inputs = BY_BYTES[form]
    dims = {"M": Guard(), "N": Guard(), "K": Guard(div=256)}
    config = {"bM": 16, "bN": 64, "bK": 128, "unpacked": "int8"}
    kernel = elaborate(load_entry(source, KERNELS), name="k", dims=dims, args=args, config=config)
    built = Library({"k": kernel}, native_target())
    rng = np.random.default_rng(5)
    for m, n, k in ((16, 64, 256), (37, 70, 768)):
        given = inputs({"M": m, "N": n, "K": k}, rng)
        given[0][0] *= 1000.0
        given = [value if value.dtype.kind in "iu" else value.astype(np.float16) for value in given]
        result = np.full((m, n), np.nan, np.float16)
        built.run("k", [*given, result], {"M": m, "N": n, "K": k})
        expected = reference(*given)
        scale = np.abs(expected).max(axis=1, keepdims=True)
        np.testing.assert_allclose(result / scale, expected / scale, rtol=2e-3, atol=5e-4)
