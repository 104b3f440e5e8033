"""Pass configs and compile flags: whose win, what they change, where they are part of a kernel."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import inprocess_kernels as kernels
import pytest

import tilec
import tilec.language as T
from tilec import PassConfigKey
from tilec.backends.cuda.codegen.compilers import find_compiler
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.errors import InputError
from tilec.ir.nvcc_flags import DeviceFlags, device_flags
from tilec.ir.options import options_of
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel
from tilec.language.frontend.pass_configs import by_text
from tilec.manifest import load_manifest
from tilec.targets import parse_target

torch = pytest.importorskip("torch")

NO_WARPS = {PassConfigKey.TL_DISABLE_WARP_SPECIALIZED: True}


def exponent(own_flags: Sequence[str] = (), own: dict[str, Any] | None = None):
    @T.prim_func
    def main(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32")):
        if own is not None:
            T.annotate_pass_configs(own)
        T.annotate_compile_flags(own_flags)
        with T.Kernel(1, threads=64) as _:
            for i in T.Parallel(64):
                Y[i] = T.sin(X[i]) / 3.0

    return main


def made(function: Any, **options: Any) -> Any:
    return tilec.jit(function, **options)._request((), {}).elaborate().kernel


# ---- keys ----


def test_keys_are_their_strings() -> None:
    key = PassConfigKey.TL_ENABLE_FAST_MATH
    assert key == key.value == "tl.enable_fast_math"
    assert {key: 1, "tl.enable_fast_math": 2} == {"tl.enable_fast_math": 2}
    assert f"{key}" == "tl.enable_fast_math"
    assert isinstance(key, str)
    assert PassConfigKey("tl.disable_safe_memory_legalize") is PassConfigKey.TL_DISABLE_SAFE_MEMORY_ACCESS
    assert json.dumps({"pass_configs": {key: True}}) == '{"pass_configs": {"tl.enable_fast_math": true}}'


@pytest.mark.parametrize(
    "name",
    """TL_ENABLE_FAST_MATH TL_DISABLE_FAST_MATH TL_DISABLE_WARP_SPECIALIZED TL_DISABLE_TMA_LOWER
    TL_DISABLE_WGMMA
    TL_DISABLE_THREAD_STORAGE_SYNC TL_DISABLE_SAFE_MEMORY_ACCESS TL_ENABLE_ASYNC_COPY TL_CONFIG_INDEX_BITWIDTH
    TL_DEVICE_COMPILE_FLAGS TL_PTXAS_REGISTER_USAGE_LEVEL TL_DISABLE_DATA_RACE_CHECK
    TL_DISABLE_BUFFER_INIT_CHECK TL_DISABLE_PRELOWER_SEMANTIC_CHECK TL_DISABLE_OUT_OF_BOUND_WARNING
    TL_ENABLE_DUMP_IR TL_DUMP_IR_DIR TL_AST_PRINT_ENABLE TL_EMIT_LINE_DIRECTIVES TL_SIMPLIFY
    TL_ENABLE_AGGRESSIVE_SHARED_MEMORY_MERGE TL_DISABLE_VECTORIZE_256 TL_ENABLE_LOWER_LDGSTG
    TL_STORAGE_REWRITE_DETECT_INPLACE TL_LAYOUT_COST_MODEL TL_LOOP_UNSWITCHING TIR_DISABLE_VECTORIZE
    TIR_MERGE_STATIC_SMEM CUDA_KERNELS_OUTPUT_DIR TL_OF_ANOTHER_VERSION TIR_OF_ANOTHER_VERSION""".split(),
)
def test_members(name: str) -> None:
    member = getattr(PassConfigKey, name)
    assert isinstance(member, PassConfigKey)
    assert member is getattr(PassConfigKey, name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert by_text({member: 1}) == {member.value: 1}
        by_text({member.value.replace("tir.", "tirx."): 1})


def test_unknown_keys_are_said_once() -> None:
    with pytest.raises(AttributeError, match="no pass config ENABLE_FAST_MATH"):
        PassConfigKey.ENABLE_FAST_MATH  # noqa: B018
    with pytest.warns(UserWarning, match="unknown key tl.nobody_knows"):
        made(exponent, pass_configs={"tl.nobody_knows": 1})
    with pytest.warns(UserWarning, match=r"did you mean tl\.disable_tma_lower\?") as warned:
        made(exponent, pass_configs={"tl.disable_tma_lowerr": 1})
    assert warned[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made(exponent, pass_configs={"tl.nobody_knows": 1})


# ---- whose win ----


def test_a_kernel_carries_what_changes_it() -> None:
    assert made(exponent).options == ()
    kernel = made(exponent, pass_configs={"tl.enable_fast_math": True, "tl.enable_dump_ir": True})
    assert kernel.options == (("fast_math", True),)
    text = format_kernel(kernel)
    assert "kernel(\"main\", options={'fast_math': True})" in text.replace("exponent", "main")
    assert format_kernel(parse_kernel(text)) == text


def test_explicit_ones_win_key_by_key() -> None:
    own = {"tl.enable_fast_math": True, PassConfigKey.TL_DISABLE_WGMMA: True}
    function = exponent(["--own"], own)
    plain = tilec.compile(function, out_idx=[-1], target="cpu")
    assert "'fast_math': True, 'no_roles': 'tl.disable_wgmma'" in plain._card.ir_text
    kernel = tilec.compile(
        function,
        out_idx=[-1],
        target="cpu",
        pass_configs={"tl.enable_fast_math": False},
        compile_flags="--a -b",
    )
    options = dict(parse_kernel(kernel._card.ir_text).options)
    assert options == {"no_roles": "tl.disable_wgmma", "compile_flags": ("--own", "--a", "-b")}
    assert kernel.pass_configs == {"tl.enable_fast_math": False}


def test_flags_of_the_decorator_count_once() -> None:
    kernel = made(exponent, compile_flags=["-x"], pass_configs={"tl.device_compile_flags": "-y -z"})
    assert kernel.option("compile_flags") == ("-y", "-z", "-x")


def test_they_are_part_of_the_key() -> None:
    keys = {
        tilec.jit(exponent, **options)._request((), {}).early_key
        for options in ({}, {"pass_configs": NO_WARPS}, {"compile_flags": "-lineinfo"})
    }
    assert len(keys) == 3


@pytest.mark.parametrize(
    ("configs", "options"),
    [
        ({"tl.enable_fast_math": True}, {"fast_math": True}),
        ({"tl.disable_fast_math": False}, {"fast_math": True}),
        ({"tl.disable_fast_math": True}, {}),
        ({"tl.enable_fast_math": False, "tl.disable_fast_math": False}, {}),
        ({"tl.disable_tma_lower": True}, {"no_roles": "tl.disable_tma_lower", "no_tma": True}),
        ({"tl.disable_warp_specialized": False}, {}),
        ({"tl.ptxas_register_usage_level": 10}, {"register_usage_level": 10}),
        ({"tl.device_compile_flags": ["-a", "-b c"]}, {"compile_flags": ("-a", "-b c")}),
        ({"tl.config_index_bitwidth": 64, "tl.disable_safe_memory_legalize": True}, {}),
    ],
)
def test_what_pass_configs_come_to(configs: dict[str, Any], options: dict[str, Any]) -> None:
    assert dict(options_of(configs)) == options


@pytest.mark.parametrize("level", [11, -1, "5", True])
def test_register_levels_have_an_end(level: object) -> None:
    with pytest.raises(InputError, match="register_usage_level"):
        options_of({"tl.ptxas_register_usage_level": level})


def test_a_manifest_states_them(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text(SOURCE)
    (tmp_path / "k.toml").write_text(MANIFEST)
    from tilec.build.elaborated.frontend import elaborate_variant
    from tilec.build.records import spec_text

    one, other = load_manifest(tmp_path / "k.toml").variants
    kernel = elaborate_variant(one).kernel
    assert dict(kernel.options) == {"fast_math": True, "compile_flags": ("--of-decorator", "-lineinfo")}
    plain = elaborate_variant(other).kernel
    assert dict(plain.options) == {"fast_math": True, "compile_flags": ("--of-decorator",)}
    assert spec_text(one) != spec_text(other)


SOURCE = """
import tilec, tilec.language as T
@tilec.jit(pass_configs={"tl.enable_fast_math": True}, compile_flags=["--of-decorator"])
def k(X):
    X: T.Tensor[[8], T.float32]
    with T.Kernel(1, threads=32) as _:
        X[0] = 1.0
"""
MANIFEST = """
edition = 1
[package]
name = "p"
[targets]
cpu = ["x86-64-v2"]
[[kernel]]
name = "one"
source = "k.py:k"
config = { compile_flags = ["-lineinfo"] }
[[kernel]]
name = "other"
source = "k.py:k"
"""


# ---- what they do ----


def test_diagnostics_may_be_silent() -> None:
    with pytest.warns(UserWarning, match="read before anything is written"):
        made(unwritten)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made(unwritten, pass_configs={PassConfigKey.TL_DISABLE_BUFFER_INIT_CHECK: True})
        tilec.compile(unwritten(), target="cpu", pass_configs={"tl.disable_buffer_init_check": True})


def unwritten():
    @T.prim_func
    def main(Y: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32) as _:
            s = T.alloc_shared((8,), "float32")
            T.copy(s, Y)

    return main


def test_fast_math_on_a_cpu_contracts() -> None:
    source = {
        fast: tilec.compile(
            exponent(), out_idx=[-1], target="cpu", pass_configs={"tl.enable_fast_math": fast}
        )
        for fast in (False, True)
    }
    x = torch.linspace(-3, 3, 64)
    for kernel in source.values():
        torch.testing.assert_close(kernel(x), torch.sin(x) / 3, rtol=1e-5, atol=1e-6)
    codes = {kernel._kernel.metadata["variants"][0]["image"]["sha256"] for kernel in source.values()}
    assert len(codes) == 2


def test_infinities_survive_fast_math() -> None:
    kernel = tilec.compile(masked, out_idx=[-1], target="cpu", pass_configs={"tl.enable_fast_math": True})
    x = torch.tensor([1.0, -float("inf"), float("nan"), 2.0])
    got = kernel(x)
    assert got[1] == 0
    assert got[2].isnan()
    torch.testing.assert_close(got[[0, 3]], torch.exp2(x[[0, 3]]))


@T.prim_func
def masked(X: T.Tensor((4,), "float32"), Y: T.Tensor((4,), "float32")):
    with T.Kernel(1, threads=32) as _:
        for i in T.Parallel(4):
            Y[i] = T.exp2(X[i])


@pytest.mark.parametrize("key", ["tl.disable_warp_specialized", "tl.disable_tma_lower", "tl.disable_wgmma"])
def test_warps_get_no_roles(key: str) -> None:
    def text(pass_configs: dict[str, Any]) -> tuple[str, str]:
        request = tilec.jit(product, pass_configs=pass_configs)._request((), {})
        target = parse_target("sm_90a")
        lowered = to_tir(lower(request.elaborate().kernel, target), target)
        return str(lowered.launches[0].func), " ".join(map(str, lowered.launches[0].roads))

    with_roles, _ = text({})
    without, notes = text({key: True})
    assert "wgmma" in with_roles
    assert "setmaxnreg" in with_roles
    assert ("wgmma" in without) == (key != "tl.disable_wgmma")
    assert "setmaxnreg" not in without
    assert "mma" in without
    assert f"the pass config {key} is set" in notes


def product(M=256, N=256, K=256):
    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float16")):
        with T.Kernel(T.ceildiv(N, 128), T.ceildiv(M, 128), threads=256) as (bx, by):
            As, Bs = T.alloc_shared((128, 64), "float16"), T.alloc_shared((64, 128), "float16")
            acc = T.alloc_fragment((128, 128), "float32")
            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(K, 64), num_stages=3):
                T.copy(A[by * 128, k * 64], As)
                T.copy(B[k * 64, bx * 128], Bs)
                T.gemm(As, Bs, acc)
            T.copy(acc, C[by * 128, bx * 128])

    return main


@pytest.mark.nvrtc
def test_options_reach_the_cuda_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler, seen = find_compiler(), []

    def listed(flags: Sequence[str]) -> DeviceFlags:
        seen.append(list(flags))
        return device_flags(flags)

    monkeypatch.setattr("tilec.backends.cuda.codegen.compilers.device_flags", listed)

    def image(**options: Any) -> str:
        kernel = tilec.compile(exponent(), out_idx=[-1], target="sm_80", **options)
        return str(kernel._kernel.metadata["variants"][0]["image"]["sha256"])

    plain = image()
    fast = image(pass_configs={"tl.enable_fast_math": True})
    assert plain != fast
    image(pass_configs={"tl.ptxas_register_usage_level": 3}, compile_flags=["-O3", "-lineinfo", "-DSOME=1"])
    levels = "--ptxas-options=--register-usage-level=3"
    assert seen == [[], ["--use_fast_math"], [levels, "-O3", "-lineinfo", "-DSOME=1"]]
    with pytest.raises(InputError, match="does not take the compile flags --no-such-flag") as found:
        image(compile_flags="--no-such-flag")
    assert "compile_flags" in found.value.remedy
    assert compiler is find_compiler()


@pytest.mark.nvrtc
def test_another_language_level_replaces_ours() -> None:
    kernel = tilec.compile(exponent(), out_idx=[-1], target="sm_80", compile_flags="-std=c++20")
    assert kernel.n_regs


def test_options_of_eager_kernels_reach_them() -> None:
    jitted = tilec.jit(kernels.halves.func, pass_configs={"tl.enable_fast_math": True})
    up, _ = jitted(torch.ones(5))
    torch.testing.assert_close(up, torch.full((5,), 2.0))
    (kernel,) = jitted._kernels.values()
    assert "'fast_math': True" in kernel._card.ir_text


@pytest.mark.parametrize(
    ("configs", "text"),
    [
        ("yes", "pass configs are a dict, not str"),
        ({"tl.enable_fast_math": "false"}, "tl.enable_fast_math is True or False, not 'false'"),
    ],
)
def test_pass_configs_of_another_kind(configs: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        tilec.jit(pass_configs=configs)
