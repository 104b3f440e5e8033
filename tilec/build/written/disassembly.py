"""The assembly of a variant in a built library, from the tile IR that the library carries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilec.errors import CompileError


def assembly_of(variant: Mapping[str, Any], ir_text: str) -> str:
    """Compiles the tile IR of a variant (given as metadata) again and returns the assembly.

    The code must come out with the hash that the library recorded; CompileError when this tilec is not the
    one that built it and makes other code.
    """
    from tilec.backends.base import backend_of
    from tilec.backends.pipeline import lower
    from tilec.backends.to_tir import to_tir
    from tilec.ir.text.parser import parse_kernel
    from tilec.targets import parse_target

    target = parse_target(variant["target"])
    prefix = variant["launches"][0]["symbol"].rpartition("_")[0]
    lowered = to_tir(lower(parse_kernel(ir_text), target), target)
    backend = backend_of(target)
    if backend.generator().compile_kernel(lowered, target, prefix).sha256 != variant["image"]["sha256"]:
        raise CompileError(
            f"the code of variant {variant['id']} cannot be shown",
            why="this tilec makes other code from its tile IR than the one that built the library",
            remedy="use the tilec and TVM versions that tilec inspect names",
        )
    return backend.text("asm", lowered, target, prefix)
