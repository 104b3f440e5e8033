"""What the sources of the sentence-embedding engine may and may not do themselves."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ENGINE = Path(__file__).resolve().parents[3] / "examples" / "cpp" / "minilm"

#: Every loop of the files that handle numbers, by its head, and what it runs over.
LOOPS = {
    "batch.cpp": {
        "auto* column : {&ids, &positions, &types, &starts, &lengths}": "columns of a batch",
        "std::int32_t t = 0; t < length; ++t": "tokens",
    },
    "encoder.cpp": {
        "std::int64_t i = 0; i < kLayers; ++i": "layers",
        "const Layer& layer : layers_": "layers",
    },
    "cpu_backend.cpp": {
        "const float* part : parts": "weights that are stacked",
        "int slot = 0; slot < kSlots; ++slot": "buffers",
    },
    "cuda_backend.cpp": {
        "const float* part : parts": "weights that are stacked",
        "int slot = 0; slot < kSlots; ++slot": "buffers",
        "const auto* column : {&batch.ids, &batch.positions, &batch.types, &batch.starts, &batch.lengths}": (
            "columns of a batch"
        ),
    },
    "cuda_device.cpp": {},
    "executor.cpp": {},
    "main.cpp": {
        "int i = 1; i < argc; ++i": "arguments",
        "const std::int32_t length : batch.lengths": "sentences",
        "const std::int32_t length : padded.lengths": "sentences",
        "read_batch(padded)": "batches",
    },
}

KERNELS = (
    *("pack", "embed", "linear", "linear_gelu", "pack_bf16", "linear_bf16", "linear_gelu_bf16"),
    *("attention", "layernorm_residual", "mean_pool"),
    *("to_f16", "embed_f16", "linear_f16", "linear_gelu_f16"),
    *("attention_f16", "layernorm_residual_f16", "mean_pool_f16"),
)
#: Functions of the library that are no kernels.
OTHERS = {"last_error", "library"}


def code(file: Path) -> str:
    """The file without comments."""
    return re.sub(r"//[^\n]*", "", file.read_text(encoding="utf-8"))


def loops(text: str) -> list[str]:
    """Heads of all for and while loops, white space folded; for loops spelled over several lines too."""
    heads = []
    for match in re.finditer(r"\b(?:for|while)\s*\(", text):
        depth, end = 1, match.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        heads.append(" ".join(text[match.end() : end - 1].split()))
    return heads


@pytest.mark.parametrize("name", LOOPS)
def test_no_loop_runs_over_the_hidden_size(name: str) -> None:
    assert set(loops(code(ENGINE / name))) == set(LOOPS[name])


def test_headers_hold_no_loop() -> None:
    assert not {file.name: found for file in ENGINE.glob("*.hpp") if (found := loops(code(file)))}


def test_no_algorithm_stands_in_for_a_loop() -> None:
    banned = re.compile(
        r"<(numeric|cmath|valarray|immintrin\.h)>|std::(transform|accumulate|inner_product|for_each)\b"
    )
    assert not {
        file.name: banned.findall(code(file)) for file in ENGINE.glob("*.?pp") if banned.search(code(file))
    }


def test_engine_calls_the_kernels_of_its_manifest() -> None:
    sources = "".join(code(file) for file in ENGINE.glob("*.cpp"))
    called = set(re.findall(r"\bminilm_kernels_(\w+)\b", sources))
    assert called == {*OTHERS, *KERNELS, *(f"{kernel}_workspace" for kernel in KERNELS)}


def test_manifest_lists_just_those_kernels() -> None:
    from tilec.manifest import load_manifest

    plan = load_manifest(ENGINE.parents[2] / "manifests" / "minilm.toml")
    assert tuple(kernel.name for kernel in plan.kernels) == KERNELS
