"""The machine code of a variant, which variants that lower to the same share: made once in a build, and named
by what it is made from."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from tilec.cache import Store, digest
from tilec.codegen.image import Image, LaunchCode, WorkspaceSlice
from tilec.package.family import package_family
from tilec.targets import parse_target

if TYPE_CHECKING:
    from tilec.ir.nodes import Kernel
    from tilec.lowering.lowered import LoweredKernel
    from tilec.targets import Target

_KIND = "code"


def image_of(kernel: Kernel, target: Target, made: Store | None) -> Image:
    """The code of a kernel: that of another one in ``made`` which was lowered to the same, else compiled and
    put there."""
    from tilec.backends.pipeline import lower
    from tilec.backends.to_tir import to_tir

    lowered = to_tir(lower(kernel, target), target)
    text = _code_text(lowered, target)
    prefix = _prefix(lowered, text)
    if made is None:
        return _compiled(lowered, target, prefix)
    told = [repr((launch.notes, launch.roads, launch.place)) for launch in lowered.launches]
    key = digest(text, *told)
    found = made.get(_KIND, key)
    if found is None:
        image = _compiled(lowered, target, prefix)
        made.put(_KIND, key, encoded(image))
        return image
    return decoded(found)


def _compiled(lowered: LoweredKernel, target: Target, prefix: str) -> Image:
    from tilec.backends.base import backend_of

    return backend_of(target).generator().compile_kernel(lowered, target, prefix)


def encoded(image: Image) -> bytes:
    """An image as bytes: a line of JSON, then the machine code."""
    head = asdict(replace(image, code=b"")) | {"code": ""}
    return json.dumps(head).encode() + b"\n" + image.code


def decoded(data: bytes) -> Image:
    """The inverse."""
    head, _, code = data.partition(b"\n")
    return read_image(json.loads(head), code)


def read_image(fields: dict[str, Any], code: bytes) -> Image:
    """The image with these fields, as JSON keeps them, and its code."""
    family = package_family(parse_target(fields["target"]))
    launches = (
        LaunchCode(
            **{
                **one,
                "grid": tuple(one["grid"]),
                "threads": tuple(one["threads"]),
                "notes": tuple(one["notes"]),
                "products": tuple(one["products"]),
                "gpu": None if one["gpu"] is None else family.read_launch(one["gpu"]),
            }
        )
        for one in fields["launches"]
    )
    workspace = (WorkspaceSlice(**one) for one in fields["workspace"])
    plain = {name: fields[name] for name in ("target", "sha256", "compiler", "min_driver", "needs")}
    return Image(code=code, launches=tuple(launches), workspace=tuple(workspace), **plain)


def symbol_prefix(lowered: LoweredKernel, target: Target) -> str:
    """A name for the functions of a variant: those with the same name are the same, and adding variants to a
    manifest renames none."""
    return _prefix(lowered, _code_text(lowered, target))


def _prefix(lowered: LoweredKernel, text: str) -> str:
    return f"{lowered.name}_{digest(text)[:12]}"


def _code_text(lowered: LoweredKernel, target: Target) -> str:
    """All that decides the code of a variant, beside tilec and the compilers themselves."""
    launches = [f"{launch.func}\n{launch.way}" for launch in lowered.launches]
    rest = (target.name, target.triple, lowered.name, lowered.workspace, lowered.needs, lowered.options)
    return "\n".join([*launches, repr(rest)])
