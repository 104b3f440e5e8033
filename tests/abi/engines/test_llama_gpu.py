"""The GPU side of the decoder-only engine on a stand-in driver whose kernels run on the CPU
(programs/running_cuda.c): its tokens, what its graphs hold, and the folder for a machine with a GPU."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from example_modules import importable
from linked import link

ROOT = Path(__file__).resolve().parents[3]
ENGINE = ROOT / "examples" / "cpp" / "llama"
PROGRAMS = Path(__file__).parents[1] / "programs"
MODULES = ("engine", "checkpoint", "peers", "native", "gpu")
NOISE = 0.15  # of logits in bfloat16, whose deviation is about 1

#: Says of every kernel that it uses few registers, and makes no code.
NVCC = r"""#!/bin/sh
case "$*" in *--version) echo "Cuda compilation tools, release 12.9, V12.9.1"; exit 0;; esac
grep -o '__global__ [^;{]*' kernel.cu | grep -o '[A-Za-z0-9_]*_[0-9a-f]\{12\}_[0-9]*' | sort -u |
while read name; do
  echo "ptxas info    : Compiling entry function '$name' for 'sm_90a'" >&2
  echo "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" >&2
  echo "ptxas info    : Used 168 registers" >&2
done
echo code > kernel.out
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not find_spec("transformers"), reason="transformers, the reference, is not installed"),
]


@pytest.fixture(scope="module")
def patch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as made:
        yield made


@pytest.fixture(scope="module")
def helpers(patch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The example's own modules, and the stand-in compiler."""
    nvcc = tmp_path_factory.mktemp("compiler") / "nvcc"
    nvcc.write_text(NVCC, encoding="utf-8")
    nvcc.chmod(0o755)
    patch.setenv("TILEC_NVCC", str(nvcc))
    with importable(ENGINE, MODULES):
        yield


def small_manifest() -> str:
    """The engine's manifest for bfloat16, heads of 64 channels and an eps of 1e-5, without schedules; keys of
    sequences that decode are split in four."""
    text = (ENGINE / "llama.toml").read_text(encoding="utf-8").replace("D = [64, 128]", "D = 64")
    text = re.sub(r'dtype = \[[^]]*"bfloat16"[^]]*\]', 'dtype = ["bfloat16"]', text)
    text = re.sub(r'(M|B) = \["1\.\.[^]]*\]', r'\1 = "dynamic"', text).replace("splits = 1,", "splits = 4,")
    tables = re.split(
        r"\n(?=\[\[kernel\]\])", text.replace("../../kernels", str(ROOT / "examples" / "kernels"))
    )
    kept = [table for table in tables if not re.search(r'name = "\w*(_e6_|q4_0|_normed_|_float32)', table)]
    overrides = re.split(r"\n(?=\[\[)", "\n".join(kept))
    gone = (
        "schedules",
        'dims = { M = "1',
        'dims = { B = "1..',
        'dims = { B = "5..',
        "dims = { D = 128",
        'for = { dtype = ["float32"]',
    )
    return "\n".join(table for table in overrides if not any(word in table for word in gone))


@pytest.fixture(scope="module")
def binary(helpers: None, patch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The engine beside a library whose code for GPUs is empty; the driver has the same kernels for CPUs."""
    from engine import best_target, build_engine, build_library

    folder = tmp_path_factory.mktemp("llama")
    on_gpu, on_cpu = folder / "gpu.toml", folder / "cpu.toml"
    text = small_manifest()
    on_gpu.write_text(text, encoding="utf-8")
    text = text.replace('name = "llama_kernels"', 'name = "stand_in"').replace(
        'targets = ["gpu"]\ndims', "dims"
    )
    on_cpu.write_text(text.replace('cuda = ["sm_90a"]\n', ""), encoding="utf-8")
    build_library(folder / "gpu", on_gpu, ["sm_90a"])
    build_library(folder / "cpu", on_cpu, [best_target()])
    build_engine(folder / "gpu", folder / "gpu" / "bin" / "llama")
    flags = (
        "-shared",
        "-fPIC",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-I",
        folder / "cpu" / "include",
        "-ldl",
        "-pthread",
    )
    link(*flags, PROGRAMS / "running_cuda.c", "-o", folder / "libcuda.so.1")
    link(*flags, PROGRAMS / "running_nccl.c", "-o", folder / "libnccl.so.2")
    patch.setenv("LD_LIBRARY_PATH", str(folder))
    patch.setenv("RUNNING_CUDA", str(folder / "cpu" / "lib" / "libstand_in.so"))
    return folder / "gpu" / "bin" / "llama"


@pytest.fixture(scope="module")
def checkpoints(helpers: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that decodes with split keys, one with a window, which does not, and a mixture of experts."""
    from checkpoint import GROUPED, SMALL, write_checkpoint

    folder = tmp_path_factory.mktemp("checkpoints")
    write_checkpoint(GROUPED["llama 64"], folder / "llama")
    write_checkpoint(SMALL["mistral"], folder / "mistral")
    write_checkpoint({**SMALL["qwen2_moe"], "rms_norm_eps": 1e-5}, folder / "qwen2_moe")
    return folder


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Counter[str]]:
    """What the driver has been asked so far: "run", "capture" and "replay"."""
    log = tmp_path / "log"
    monkeypatch.setenv("RUNNING_CUDA_LOG", str(log))
    return lambda: Counter(line.split()[0] for line in log.read_text(encoding="utf-8").splitlines())


def prompts() -> list[list[int]]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 512, length).tolist() for length in (3, 70, 1, 33, 17)]


@pytest.mark.parametrize(
    ("family", "precision", "cache_type"),
    [
        ("llama", "bfloat16", "same"),
        ("mistral", "bfloat16", "same"),
        ("llama", "q4_0", "same"),
        ("llama", "fp8", "same"),
        ("llama", "bfloat16", "fp8"),
        ("mistral", "bfloat16", "fp8"),
        ("qwen2_moe", "q4_0", "same"),
        ("qwen2_moe", "fp8", "fp8"),
    ],
)
def test_logits_and_tokens_are_those_of_torch(
    binary: Path, checkpoints: Path, family: str, precision: str, cache_type: str
) -> None:
    from engine import Engine
    from gpu import check_model

    if precision == "q4_0":
        pytest.importorskip("gguf", reason="quantises the reference")
    engine = Engine(binary, checkpoints / family, precision, device="cuda", cache_type=cache_type)
    found = check_model(engine, 512)
    assert not found["failures"], found


@pytest.mark.usefixtures("helpers")
def test_what_reading_takes_is_counted_in_the_bytes_of_a_precision() -> None:
    """Eight billion weights without the table of embeddings, and 128 KiB of cache a token in 16 bits."""
    from gpu import MODELS, bytes_read

    weights = 7504658432.0
    read = {name: bytes_read(MODELS["8b"], 2, 1000, name) for name in ("bfloat16", "q4_0")}
    cache = 2000 * 131072
    assert read == {"bfloat16": 2 * weights + cache, "q4_0": weights * 18 / 32 + cache}


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_steps_that_decode_are_replayed_and_others_are_not(
    binary: Path, checkpoints: Path, family: str, asked: Callable[[], Counter[str]]
) -> None:
    """The first step of a size is made call by call, the second captured; five sequences are eight rows."""
    from engine import Engine

    engine = Engine(binary, checkpoints / family, device="cuda")
    engine.generate(prompts(), 12)
    assert asked()["replay"] == 10
    calls = asked()["capture"]
    assert asked()["run"] > calls > 0
    engine.generate(prompts(), 20)
    assert (asked()["replay"], asked()["capture"]) == (10 + 18, 2 * calls)


def test_one_product_of_a_layer_has_its_operand_rounded_by_a_launch_of_its_own(
    binary: Path, checkpoints: Path, asked: Callable[[], Counter[str]]
) -> None:
    """That behind attention; beside them the first of all products and the last one."""
    from checkpoint import GROUPED
    from engine import Engine

    captured = []
    for precision in ("bfloat16", "fp8"):
        Engine(binary, checkpoints / "llama", precision, device="cuda").generate(prompts()[:1], 4)
        captured.append(asked()["capture"] - sum(captured))
    assert captured[1] - captured[0] == GROUPED["llama 64"]["num_hidden_layers"] + 2


def test_what_a_batch_has_beside_a_sequence_changes_no_draw(binary: Path, checkpoints: Path) -> None:
    """Sequences of one seed and prompt draw the same, wherever they stand, also where rows are filled up."""
    from engine import Engine

    engine, prompt = Engine(binary, checkpoints / "mistral", device="cuda"), prompts()[3]
    together = engine.generate([prompt] * 3, 24, temperature=1.5, seed=7)
    assert together[0] == together[1] == together[2]


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_a_model_on_two_devices_has_the_tokens_of_torch(
    binary: Path,
    checkpoints: Path,
    family: str,
    asked: Callable[[], Counter[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sums over ranks are in the graphs of steps that decode."""
    from engine import Engine
    from peers import disagreements, load_model

    monkeypatch.setenv("FAKE_CUDA", "2 90 12090")
    answers = Engine(binary, checkpoints / family, device="cuda").generate(prompts(), 12, ranks=2)
    assert asked()["replay"] == 2 * 10
    model = load_model(checkpoints / family)
    for prompt, answer in zip(prompts(), answers, strict=True):
        assert not disagreements(model, prompt, answer, NOISE)


def test_a_step_without_sums_is_timed_beside_one_with_them(
    binary: Path, checkpoints: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An NCCL that sums nothing serves ranks, whose tokens are others then; the table has what sums take."""
    import gpu
    from engine import Engine

    monkeypatch.setenv("FAKE_CUDA", "2 90 12090")
    gpu.build_without_sums(tmp_path / gpu.WITHOUT_SUMS)
    split = Engine(binary, checkpoints / "llama", device="cuda", ranks=2)
    without = replace(split, libraries=str(tmp_path / gpu.WITHOUT_SUMS))
    answers = [engine.generate(prompts(), 12) for engine in (split, without)]
    assert answers[0] != answers[1]
    assert [len(answer) for answer in answers[1]] == [12] * len(prompts())
    rows = {
        "decode 1 x 1000": {"one": {"ms": 5.0}, "ranks": {"ms": 4.0}, "without sums": {"ms": 3.0}},
        "decode 64 x 8000": {"one": {"error": "full"}, "ranks": {"ms": 4.0}, "without sums": {"ms": 3.0}},
    }
    assert gpu.table_of_ranks(rows).splitlines()[2:] == ["| decode 1 x 1000 | 5.00 | 4.00 | 1.25 | 25% |"]


def test_ranks_without_nccl_or_devices_are_told(
    binary: Path, checkpoints: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine import Engine, EngineError

    engine = Engine(binary, checkpoints / "llama", device="cuda")
    with pytest.raises(EngineError, match="cuDeviceGet failed"):
        engine.generate([[1]], 1, ranks=2)
    (tmp_path / "libcuda.so.1").symlink_to(binary.parents[2] / "libcuda.so.1")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    with pytest.raises(EngineError, match="--ranks on GPUs needs NCCL: libnccl"):
        engine.generate([[1]], 1, ranks=2)


def test_a_machine_without_a_driver_is_told(
    binary: Path, checkpoints: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine import Engine, EngineError

    if Path("/proc/driver/nvidia").exists():
        pytest.skip("this machine has a driver")
    monkeypatch.delenv("LD_LIBRARY_PATH")
    with pytest.raises(EngineError, match="--device cuda: no CUDA driver"):
        Engine(binary, checkpoints / "llama", device="cuda").generate([[1]], 1)


@pytest.mark.parametrize("device", ["gpu", "cuda1", "cuda:x", "cuda:99"])
def test_a_device_that_is_none_is_refused(binary: Path, checkpoints: Path, device: str) -> None:
    from engine import Engine, EngineError

    with pytest.raises(EngineError, match="--device"):
        Engine(binary, checkpoints / "llama", device=device).generate([[1]], 1)


def test_the_folder_for_a_gpu_machine_is_whole(
    binary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its scripts need nothing beside it, and its engine runs on any Linux with this processor."""
    import gpu

    def build(out: Path, targets: list[str]) -> None:
        assert targets[0] == "sm_90a"
        (out / "lib").mkdir(parents=True)
        for part in ("include", "lib"):
            subprocess.run(["cp", "-r", str(binary.parents[1] / part), str(out)], check=True)

    monkeypatch.setattr(gpu, "build_library", build)
    gpu.write_folder(tmp_path / "folder")
    made = {path.name for path in (tmp_path / "folder").iterdir()}
    assert made == {*gpu.FILES, "llama", "libllama_kernels.so.1", gpu.WITHOUT_SUMS}
    usage = subprocess.run([tmp_path / "folder" / "llama"], capture_output=True, text=True, check=False)
    assert (usage.returncode, usage.stderr[:14]) == (2, "llama: usage: ")
    script = [sys.executable, "-I", "-c", "import sys; sys.path.insert(0, '.'); import gpu, gpu_peers, peers"]
    subprocess.run(script, cwd=tmp_path / "folder", check=True)


@pytest.mark.usefixtures("helpers")
def test_a_token_between_two_experts_says_nothing_of_what_follows_it() -> None:
    """The model prefers token 1 everywhere; its router is undecided at the second token of the answer."""
    import torch
    from peers import disagreements

    class Undecided:
        config = SimpleNamespace(num_experts_per_tok=2)

        def __call__(self, ids: torch.Tensor, output_router_logits: bool = False) -> SimpleNamespace:
            thirds = torch.tensor([0.0, 0.0, 0.0, 0.99, 0.0])
            router = torch.stack([torch.full((5,), 2.0), torch.ones(5), thirds], dim=1)
            logits = torch.tensor([[[0.0, 1.0]] * ids.shape[1]])
            return SimpleNamespace(logits=logits, router_logits=(router,) if output_router_logits else None)

    prompt, answer = [1, 1, 1], [0, 0]
    assert disagreements(Undecided(), prompt, answer, NOISE) == [0, 1]
    assert disagreements(Undecided(), prompt, answer, NOISE, routing_noise=0.02) == [0]
