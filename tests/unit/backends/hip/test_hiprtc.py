"""Code objects by hipRTC, where a ROCm is installed: that of Debian 12 (libamdhip64-5) knows gfx90a."""

from __future__ import annotations

from functools import lru_cache

import pytest
from device_kernels import add

from tilec.backends.base import backend_of
from tilec.backends.hip.codegen import hiprtc, images
from tilec.backends.hip.codegen.notes import read_notes
from tilec.errors import CompileError, EnvironmentError_, UnsupportedError
from tilec.targets import parse_target

LIBRARIES = ("libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5", "libamdhip64.so.5")
TARGET = parse_target("gfx90a")


@lru_cache(maxsize=1)
def installed() -> str | None:
    for library in LIBRARIES:
        try:
            hiprtc.version(library)
        except EnvironmentError_:
            continue
        return library
    return None


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> str:
    found = installed()
    if found is None:
        pytest.skip("no hipRTC is installed")
    monkeypatch.setenv("TILEC_HIPRTC", found)
    return found


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_code_objects_are_as_those_of_clang(
    library: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = images.compile_kernel(add(dtype), TARGET, "p")
    assert image.compiler == backend_of(TARGET).compiler() == hiprtc.version(library)
    monkeypatch.delenv("TILEC_HIPRTC")
    other = images.compile_kernel(add(dtype), TARGET, "p")
    assert other.compiler.startswith("ziglang ")
    found, wanted = (read_notes(each.code)["p_0"] for each in (image, other))
    for fact in ("arguments", "lanes", "threads", "shared", "scratch", "spills"):
        assert getattr(found, fact) == getattr(wanted, fact), fact


def test_errors_are_the_compilers_words(library: str) -> None:
    with pytest.raises(CompileError) as caught:
        hiprtc.code_object("__global__ void broken( {", TARGET.mcpu, library)
    assert "hipRTC " in caught.value.what
    assert "error: " in caught.value.why


def test_it_has_no_assembly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEC_HIPRTC", "libhiprtc.so")
    with pytest.raises(UnsupportedError, match="hipRTC gives no assembly"):
        images.assembly(add(), TARGET, "p")


def test_a_library_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEC_HIPRTC", "libnothing.so.9")
    with pytest.raises(EnvironmentError_, match=r'TILEC_HIPRTC is "libnothing\.so\.9"'):
        backend_of(TARGET).compiler()
    monkeypatch.setenv("TILEC_HIPRTC", "libc.so.6")
    with pytest.raises(EnvironmentError_) as caught:
        backend_of(TARGET).compiler()
    assert "hiprtcVersion" in caught.value.why
