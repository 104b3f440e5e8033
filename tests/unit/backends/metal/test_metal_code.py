"""Metal source: what becomes of helpers and their pointers, of names, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from device_kernels import add
from metal_compiled import compiled
from metal_source import TARGET

from tilec.backends.cuda.device import ends, exchange, floats, moves
from tilec.backends.cuda.device.atomics import atomic
from tilec.backends.metal.codegen import images
from tilec.backends.metal.codegen.header import FUNCTIONS, header
from tilec.backends.metal.codegen.helpers import metal_text
from tilec.backends.metal.codegen.words import Names
from tilec.errors import CompileError, InputError, UnsupportedError
from tilec.systems import SYSTEMS
from tilec.targets import native_host, parse_host, parse_target


def written(helper: object, *spaces: str) -> str:
    return metal_text(helper.name, helper.text, list(spaces))  # type: ignore[attr-defined]


def test_pointers_have_spaces() -> None:
    text = written(moves.move(16), "threadgroup", "device")
    assert "(threadgroup void* to, long to_at, device const void* from, long from_at)" in text
    assert "((threadgroup uint4*)to)[to_at] = ((device const uint4*)from)[from_at];" in text
    text = written(ends.read_end(16, 2), "thread", "device")
    assert "((device const tilec_any_ushort*)from)[at + i]" in text
    assert "((thread tilec_any_uint*)to)[i]" in text


def test_exchanges_are_told_their_place() -> None:
    text = written(exchange.exchange("float32"))
    assert "tilec_shuffle_xor_float32(tilec_place here, float value, int mask)" in text
    assert "__shfl_xor_sync(here, 0xffffffffu, value, mask)" in text
    assert "here.blocks.x" in written(exchange.grid_extent("x"))


def test_instructions_become_functions() -> None:
    assert "power = tilec_ex2_approx_ftz_f32(x);" in written(floats.EXP2)
    assert "held = tilec_ld_relaxed_gpu_b32(cell);" in written(atomic("max", "float32", "relaxed"), "device")


def test_what_is_left_of_nvidia_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="tilec_load16 on Apple GPUs"):
        written(moves.LOAD16)
    with pytest.raises(UnsupportedError, match="Metal has no __threadfence"):
        written(atomic("add", "int32", "acq_rel"), "device")
    with pytest.raises(UnsupportedError, match="Metal has no __activemask"):
        written(exchange.ACTIVE)
    assert "__activemask" not in written(exchange.warp_sync(None))


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
@pytest.mark.parametrize("space", ["device", "threadgroup"])
def test_atomics_of_64_bits_are_refused(dtype: str, space: str) -> None:
    for kind in ("add", "max", "min", "or"):
        with pytest.raises(UnsupportedError, match=f"tilec_atomic_{kind}_{dtype} on Apple GPUs"):
            written(atomic(kind, dtype, "relaxed"), space)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_atomics_of_16_bits_are_refused(dtype: str) -> None:
    for kind in ("add", "max", "min"):
        with pytest.raises(UnsupportedError, match=f"_{dtype} on Apple GPUs(.|\n)*atomics are of 32 bits"):
            written(atomic(kind, dtype, "relaxed"), "device")


def test_names() -> None:
    names = Names()
    assert [names.fresh(each) for each in ("x", "x", "thread", "half", "x.y")] == [
        "x", "x_1", "thread_1", "half_1", "x_y",
    ]  # fmt: skip


def test_the_header_stands_alone(tmp_path: Path) -> None:
    assert {"tilec_sync", "__shfl_sync", "atomicAdd", "expf", "tilec_lop3_b32"} <= FUNCTIONS
    compiled(header(" ".join(FUNCTIONS)), tmp_path)


def test_the_header_has_what_is_called() -> None:
    some = header("y = tilec_cvt_rn_f16x2_f32(x, x);")
    assert re.findall(r"^inline \w+ (\w+)", some, re.MULTILINE) == [
        "tilec_cvt_rn_f16_f32",
        "tilec_cvt_rn_f16x2_f32",
    ]


def test_images_are_source() -> None:
    image = images.compile_kernel(add("float16"), TARGET, "p")
    text = image.code.decode()
    assert text.endswith("}\n\0")
    assert "[[max_total_threads_per_threadgroup(256)]]\nkernel void p_0(" in text
    assert len(re.findall(r"\[\[buffer\(\d\)\]\]", text)) == 4
    assert image.launches[0].gpu.static_shared == 0


def test_limits_and_names() -> None:
    wanted = "needs 40000 bytes of shared memory in a block, metal3 has 32768"
    with pytest.raises(CompileError, match=wanted):
        images.compile_kernel(add(shared_bytes=40000), TARGET, "p")
    with pytest.raises(InputError, match="takes no features"):
        parse_target("metal3+fp8")


def test_code_is_in_libraries_of_macos_alone() -> None:
    from tilec.families import family_of

    hosts = [parse_host(f"aarch64-{system.example}") for system in SYSTEMS]
    assert [family_of(TARGET).fits(TARGET, host) for host in hosts] == [False, True, False]
    assert not family_of(TARGET).fits(TARGET, native_host())
    assert parse_target("metal3") == TARGET
