"""CUDA images cross processes and the cache as they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from tilec.backends.cuda.launch import CudaLaunch, TensorMapCode, WindowCode
from tilec.build.records import CompiledVariant, decode, encode
from tilec.codegen.image import Image, LaunchCode
from tilec.package.model import Signature, VariantRecord


def test_images_survive_encoding(tmp_path: Path) -> None:
    found = TensorMapCode(0, "float16", ("K", "M"), ("(K) * 2",), (64, 128), 128)
    seen = replace(found, window=WindowCode((-1, -1), (0, -2), (1, 2)))
    maps = (found, replace(found, rest=256), seen)
    gpu = CudaLaunch(1024, (2, 1, 1), registers=168, blocks_per_sm=1, tensor_maps=maps)
    launches = (LaunchCode("k_0", ("M",), (384, 1, 1), gpu=gpu), LaunchCode("k_1", ("1", "M"), (32, 1, 1)))
    image = Image("sm_90a", b"\x7fELF\n\0rest", "digest", launches, (), "nvrtc 12.9", 12000)
    made = CompiledVariant(Signature((), ()), VariantRecord("sm_90a", (), image))
    variant = SimpleNamespace(config={}, config_source="manifest", cost="", listed_under=None, tolerance={})
    assert decode(encode(made, tmp_path), variant).record.image == image
