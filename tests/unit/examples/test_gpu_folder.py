"""The part of a model that the folder for another machine carries, and the whole that is made of it there."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ENGINE = Path(__file__).resolve().parents[3] / "examples" / "cpp" / "minilm"
LAYER = "encoder.layer.{}.output.dense.weight"
TABLE = "embeddings.word_embeddings.weight"


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ENGINE))
    import gpu_folder

    yield gpu_folder
    for name in ("gpu_folder", "engine", "batches"):
        sys.modules.pop(name, None)


@pytest.fixture
def part(folder: ModuleType, tmp_path: Path) -> tuple[dict[str, np.ndarray], Path]:
    """A model of six layers with four columns, and the file of its part for three words."""
    save = pytest.importorskip("safetensors.numpy", reason="writes the model").save_file
    rng = np.random.default_rng(0)
    model = {LAYER.format(i): rng.standard_normal((4, 4)).astype(np.float32) for i in range(6)}
    model |= {TABLE: rng.standard_normal((30522, 4)).astype(np.float32), "pooler.dense.bias": np.zeros(4)}
    save(model, tmp_path / "model.safetensors")
    np.savez(tmp_path / "part.npz", **folder.part_of(tmp_path / "model.safetensors", [[7, 9], [9, 30521]]))
    return model, tmp_path / "part.npz"


def test_the_part_holds_two_layers_and_the_words(part: tuple[dict[str, np.ndarray], Path]) -> None:
    stored = dict(np.load(part[1]))
    assert sorted(name for name in stored if name.startswith("encoder")) == [LAYER.format(0), LAYER.format(1)]
    assert stored["word ids"].tolist() == [7, 9, 30521]
    assert all(value.dtype == np.float16 for name, value in stored.items() if name != "word ids")


def test_the_whole_repeats_layers_and_keeps_words(
    folder: ModuleType, part: tuple[dict[str, np.ndarray], Path], tmp_path: Path
) -> None:
    model, file = part
    whole = folder.whole_model(file)
    for layer in range(6):
        np.testing.assert_allclose(
            whole[LAYER.format(layer)], model[LAYER.format(layer % 2)], rtol=2e-3, atol=1e-6
        )
    np.testing.assert_allclose(whole[TABLE][[7, 9, 30521]], model[TABLE][[7, 9, 30521]], rtol=1e-3, atol=1e-6)
    assert (whole[LAYER.format(0)].astype(np.float16) != whole[LAYER.format(0)]).any(), "nothing to round"
    folder.write_safetensors(tmp_path / "whole.safetensors", whole)
    load = pytest.importorskip("safetensors.numpy", reason="reads the model").load_file
    read = load(tmp_path / "whole.safetensors")
    assert read.keys() == whole.keys()
    assert all((read[name] == whole[name]).all() for name in whole)
