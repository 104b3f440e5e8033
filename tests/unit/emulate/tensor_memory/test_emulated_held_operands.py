"""Attention by tcgen05 runs on the emulator: sums and weights go to tensor memory and come back, and faults
planted there are found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from emulated import KERNELS, Beside, kernel_of, lowered, roads, without
from shipped import ROOT, variants

from tilec.backends.cuda.codegen import images
from tilec.build.elaborated.frontend import elaborate_variant
from tilec.errors import EmulationError
from tilec.ir.guards import Guard
from tilec.ir.nodes import Kernel
from tilec.language.frontend.elaborate import load_entry
from tilec.targets import parse_target
from tilec.trials.oracle import Author

SM100A = parse_target("sm_100a")
IDIOMS = ROOT / "tests" / "kernels" / "idioms" / "attention.toml"


def attention(size: int = 32, entry: str = "attention_dense", **config: Any) -> Kernel:
    guards = {**dict.fromkeys(("B", "Sq", "Sk", "H", "Hkv"), Guard()), "D": Guard(eq=size)}
    guards |= dict.fromkeys(("q_batch", "q_row", "kv_batch", "kv_row"), Guard(div=8))
    args = {"dtype": config.pop("dtype", "float16"), "causal": config.pop("causal", True)}
    config = {"bM": 128, "bN": 32, "threads": 128, "num_stages": 2, "width": size, **config}
    return kernel_of(f"attention.py:{entry}", guards, args, **config)


def dims(size: int = 32, **sizes: int) -> dict[str, int]:
    """Of tensors without gaps."""
    found = {"B": 1, "Sq": 5, "Sk": 70, "H": 1, "Hkv": 1, "D": size, **sizes}
    q_row, kv_row = (found[heads] * size for heads in ("H", "Hkv"))
    strides = {"q_row": q_row, "q_batch": found["Sq"] * q_row, "kv_row": kv_row}
    return found | strides | {"kv_batch": found["Sk"] * kv_row}


@pytest.mark.parametrize(
    ("name", "size", "config", "sizes"),
    [
        ("sm_100a", 32, {}, {}),
        ("sm_103a", 64, {"dtype": "bfloat16", "causal": False, "bN": 64}, {"H": 2, "Sk": 130}),
        ("sm_110f", 64, {"threads": 256, "bN": 64}, {"Sq": 130, "Sk": 0}),
    ],
)
def test_attention_has_sums_and_weights_in_tensor_memory(
    name: str, size: int, config: dict[str, Any], sizes: dict[str, int]
) -> None:
    kernel = attention(size, **config)
    made = lowered(kernel, name)
    text, columns = roads(made), config.get("bN", 32)
    assert f"Qs, Ks -> S: tcgen05 m128n{columns}k16, sums in tensor memory" in text
    assert f"P, Vs -> o: tcgen05 m128n{size}k16, P and sums in tensor memory" in text
    assert Beside(kernel, parse_target(name), lowered=made).run(dims(size, **sizes)) == []


def test_blocks_multiply_alone() -> None:
    made = lowered(attention(cluster=[2, 1]))
    assert (
        "no pairs of blocks for one product: products are in no loop of products alone"
        in made.launches[0].notes
    )
    assert "m128n32k16" in roads(made)


def of_sequences(entry: str, args: dict[str, Any]) -> tuple[Kernel, Author]:
    """A kernel over sequences back to back, whose values behind an end threads replace by zeros."""
    guards = {**dict.fromkeys(("tokens", "keys", "H", "Hkv", "B"), Guard()), "D": Guard(eq=32)}
    names = ("tokens", "H", "D", "B") if "fused" in entry else tuple(guards)
    config = {"bM": 128, "bN": 32, "threads": 128}
    kernel = kernel_of(entry, {name: guards[name] for name in names}, args, **config)
    return kernel, Author(inputs=load_entry(f"{entry}_inputs", KERNELS))


def padded(**config: Any) -> tuple[Kernel, Author]:
    return attention(entry="attention", **config), Author(
        inputs=load_entry("attention.py:attention_inputs", KERNELS)
    )


TOKENS = {"tokens": 150, "keys": 100, "H": 2, "Hkv": 1, "B": 3, "D": 32}


@pytest.mark.parametrize(
    ("made", "sizes"),
    [
        (lambda: padded(), dims(B=2)),
        (lambda: padded(causal=False, blocks=4), dims(H=2, Sk=100)),
        (lambda: (attention(blocks=2), None), dims(H=4, Hkv=2, Sk=100)),
        (lambda: of_sequences("attention_varlen.py:attention_varlen", {"dtype": "float16"}), TOKENS),
        (lambda: of_sequences("attention_fused.py:attention_fused", {}), TOKENS),
    ],
    ids=["padded", "padded in parts", "heads in one tile", "sequences", "fused"],
)
def test_operands_that_threads_bring(
    made: Callable[[], tuple[Kernel, Author | None]], sizes: dict[str, int]
) -> None:
    kernel, author = made()
    found = lowered(kernel)
    assert "P and sums in tensor memory" in roads(found)
    known = {name: size for name, size in sizes.items() if name in kernel_dims(kernel)}
    assert Beside(kernel, SM100A, author, lowered=found).run(known) == []


def kernel_dims(kernel: Kernel) -> set[str]:
    return {dim.name for dim in kernel.dims}


@pytest.mark.emulate
@pytest.mark.parametrize(
    ("size", "config", "sizes"),
    [
        (64, {"bM": 256, "threads": 256, "bN": 64}, {"Sq": 200, "Sk": 200}),
        (128, {"bN": 128}, {"Sq": 130, "Sk": 130, "H": 4, "Hkv": 2}),
        (128, {"bN": 64, "causal": False, "dtype": "bfloat16"}, {"B": 2, "Sk": 100}),
        (256, {"bN": 64, "threads": 256}, {"Sk": 100}),
    ],
)
def test_tiles_of_other_sizes(size: int, config: dict[str, Any], sizes: dict[str, int]) -> None:
    kernel = attention(size, **config)
    assert "P and sums in tensor memory" in roads(lowered(kernel))
    assert Beside(kernel, SM100A).run(dims(size, **sizes)) == []


@pytest.mark.parametrize("name", ["staged_output_d256", "rows_gathered"])
def test_results_take_the_bytes_of_rings(name: str) -> None:
    """Beside rings that fill shared memory; sums of rows that two warpgroups share have room, too."""
    (variant,) = variants(IDIOMS, name, "sm_90a")
    made = lowered(elaborate_variant(replace(variant, target=SM100A)).kernel)
    assert "P and sums in tensor memory" in roads(made)


def test_a_note_says_why_a_launch_has_none() -> None:
    (launch,) = lowered(attention(bM=64)).launches
    assert any("cannot share 64 x 32 sums in tensor memory" in note for note in launch.notes)


@pytest.mark.nvrtc
@pytest.mark.parametrize(("name", "size"), [("sm_100a", 128), ("sm_103a", 64)])
def test_the_assembler_takes_it_without_spills(name: str, size: int) -> None:
    made = lowered(attention(size, bN=64), name)
    (launch,) = images.compile_kernel(made, parse_target(name), "p").launches
    assert (launch.gpu.spills, launch.products) == (0, ("tcgen05",))


# ---- faults ----


@pytest.mark.parametrize(
    ("call", "which", "what", "remedy"),
    [
        ("wait::st", 2, "tcgen05.mma by warp 0 of tensor memory", "tcgen05.wait::st is missing"),
        ("before_thread_sync", 4, "that warp 1 may still write", "before_thread_sync is missing"),
        ("bar_sync_count", 1, "that warp 1 may still write", "a barrier is missing"),
        ("after_thread_sync", 6, "that warp 1 may still read", "fence::after"),
        ("after_thread_sync", 2, "products that it does not know to be complete", "fence::after"),
        ("wait::ld", 1, "register o[0] is read while", "wait for the product"),
    ],
)
def test_what_tensor_memory_needs_is_not_left_out(call: str, which: int, what: str, remedy: str) -> None:
    kernel = attention()
    with pytest.raises(EmulationError) as caught:
        Beside(kernel, SM100A, lowered=without(kernel, SM100A, call, which)).run(dims())
    assert what in str(caught.value)
    assert remedy in str(caught.value)


def test_what_threads_bring_is_made_visible_to_products() -> None:
    kernel = attention(blocks=2)
    with pytest.raises(EmulationError, match="with no proxy fence between"):
        Beside(kernel, SM100A, lowered=without(kernel, SM100A, "fence_proxy")).run(dims(H=2))
