"""The sentence-embedding engine: what its binary binds, and its vectors beside torch."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ENGINE = Path(__file__).resolve().parents[3] / "examples" / "cpp" / "minilm"
KERNELS = (
    *("pack", "embed", "linear", "linear_gelu", "pack_bf16", "linear_bf16", "linear_gelu_bf16"),
    *("attention", "layernorm_residual", "mean_pool"),
    *("to_f16", "embed_f16", "linear_f16", "linear_gelu_f16"),
    *("attention_f16", "layernorm_residual_f16", "mean_pool_f16"),
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def helpers():
    """The example's own modules, importable while the test runs."""
    sys.path.insert(0, str(ENGINE))
    yield
    sys.path.remove(str(ENGINE))


@pytest.fixture(scope="module")
def binary(helpers, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The engine, built against a library of its manifest."""
    from engine import build_engine, build_library

    prefix = tmp_path_factory.mktemp("minilm")
    build_library(prefix)
    build_engine(prefix, prefix / "bin" / "minilm")
    return prefix / "bin" / "minilm"


@pytest.fixture(scope="module")
def assets(helpers):
    """Weights and tokenizer."""
    from assets import AssetsMissing, find_assets

    try:
        return find_assets()
    except AssetsMissing as missing:
        pytest.skip(str(missing))


def readelf(*arguments: str) -> str:
    tool = shutil.which("readelf")
    if tool is None:
        pytest.skip("readelf is not installed")
    return subprocess.run([tool, *arguments], check=True, capture_output=True, text=True).stdout


def test_binary_binds_every_kernel_and_nothing_else_of_the_library(binary: Path) -> None:
    undefined = re.findall(r"UND\s+(minilm_kernels_\w+)", readelf("--dyn-syms", "--wide", str(binary)))
    assert set(undefined) == {
        "minilm_kernels_last_error",
        "minilm_kernels_library",
        *(f"minilm_kernels_{kernel}{suffix}" for kernel in KERNELS for suffix in ("", "_workspace")),
    }


def test_binary_links_the_library_and_the_language_runtime_alone(binary: Path) -> None:
    needed = re.findall(r"NEEDED.*\[(\S+)\]", readelf("--dynamic", "--wide", str(binary)))
    runtime = re.compile(r"(libstdc\+\+|libgcc_s|libc|libm|libpthread|libdl|ld-linux-\S+)\.so\S*")
    assert [name for name in needed if not runtime.fullmatch(name)] == ["libminilm_kernels.so.1"]


def check_against_torch(binary: Path, assets, threads: int, precision: str) -> None:
    """Mixed, single-token and equal-length batches; the reference is torch in float32."""
    pytest.importorskip("torch", reason="torch is the reference")
    pytest.importorskip("safetensors", reason="reads the weights for torch")
    from batches import made_up, pad
    from engine import Engine
    from peers import load_model, torch_peer

    words = made_up(1, 70).ids[0].tolist()
    mixed = pad([words[:n] for n in (1, 2, 17, 33, 64, 70)])
    reference = torch_peer(load_model(assets.weights), threads)
    with Engine(binary, assets.weights, threads, precision) as engine:
        for batch in (mixed, made_up(1, 1), made_up(3, 40)):
            _, vectors = engine.encode(batch)
            np.testing.assert_allclose((vectors * reference(batch)).sum(1), 1, atol=1e-4)
            np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_vectors_agree_with_torch(binary: Path, assets, threads: int, precision: str) -> None:
    check_against_torch(binary, assets, threads, precision)


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_vectors_agree_at_lower_levels(
    binary: Path, assets, level: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if level == "x86-64-v3" and " avx2 " not in Path("/proc/cpuinfo").read_text(encoding="utf-8"):
        pytest.skip("this machine has no AVX2")
    monkeypatch.setenv("TILEC_CPU", level)
    check_against_torch(binary, assets, 2, precision)


def test_padding_does_not_change_a_vector(binary: Path, assets) -> None:
    from batches import Batch, made_up
    from engine import Engine

    alone = made_up(1, 9)
    ids = np.full((1, 31), 12345, np.int32)
    ids[:, :9] = alone.ids
    with Engine(binary, assets.weights, 1) as engine:
        np.testing.assert_array_equal(engine.encode(alone)[1], engine.encode(Batch(ids, alone.lengths))[1])


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "message"),
    [
        ([], b"", 2, "usage"),
        (["--threads", "0", "x"], b"", 2, "--threads"),
        (["--precision", "float16", "x"], b"", 2, "float32 or bfloat16"),
        (["--precision", "float32", "--device", "cuda", "x"], b"", 2, "float16 alone"),
        (["--device", "gpu", "x"], b"", 2, "cuda:<number>"),
        (["/nowhere/model.safetensors"], b"", 1, "cannot open"),
    ],
)
def test_wrong_usage_is_an_error(
    binary: Path, arguments: list[str], stdin: bytes, code: int, message: str
) -> None:
    done = subprocess.run([str(binary), *arguments], input=stdin, capture_output=True, timeout=30)
    assert (done.returncode, message in done.stderr.decode()) == (code, True)


@pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="this machine has a driver")
def test_without_a_driver_the_gpu_is_refused(binary: Path, assets) -> None:
    command = [str(binary), str(assets.weights), "--device", "cuda"]
    done = subprocess.run(command, input=b"", capture_output=True, timeout=30)
    assert (done.returncode, b"no CUDA driver" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    ("stdin", "message"),
    [
        (b"\x01\x00\x00\x00", "ends inside a batch"),
        (np.array([1, 4, 9, 1, 2, 3, 4], np.int32).tobytes(), "length lies outside"),
        (np.array([0, 4], np.int32).tobytes(), "1 sentence or more"),
    ],
)
def test_malformed_batches_are_errors(binary: Path, assets, stdin: bytes, message: str) -> None:
    done = subprocess.run([str(binary), str(assets.weights)], input=stdin, capture_output=True, timeout=30)
    assert (done.returncode, message in done.stderr.decode()) == (1, True)


@pytest.mark.parametrize(
    "content",
    [
        b"short",
        (1 << 40).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"{]" + bytes(8),
        (60).to_bytes(8, "little") + b'{"w":{"dtype":"F32","shape":[4],"data_offsets":[0,9999]}}'.ljust(60),
    ],
)
def test_broken_weights_are_errors(binary: Path, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(content)
    done = subprocess.run([str(binary), str(file)], input=b"", capture_output=True, timeout=30)
    assert done.returncode == 1
    assert done.stderr.startswith(b"minilm: ")
