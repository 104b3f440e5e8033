"""The machine code of a variant."""

from __future__ import annotations

from pathlib import Path

import pytest

import tilec
import tilec.language as T
from tilec.build.reuse import images
from tilec.cache import Store
from tilec.language.frontend.elaborate import elaborate
from tilec.targets import parse_target


@tilec.jit
def doubled(N=16):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=32) as _:
            for i in T.Parallel(N):
                B[i] = A[i] * 2.0

    return main


@pytest.mark.parametrize("shared", [False, True])
def test_a_launch_is_written_out_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool) -> None:
    """Its text takes as long as a pass; it names the code, for this variant and for those like it."""
    written, text_of = [], images._code_text
    monkeypatch.setattr(images, "_code_text", lambda *given: written.append(text_of(*given)) or written[-1])
    kernel = elaborate(doubled, name="doubled", dims={}, args={}, config={})
    image = images.image_of(kernel, parse_target("x86-64-v3"), Store(tmp_path) if shared else None)
    (text,) = written
    assert image.launches[0].symbol == f"doubled_{images.digest(text)[:12]}_0"
