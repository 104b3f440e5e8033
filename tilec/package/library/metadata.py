"""What a library says about itself: the metadata JSON and the bytes of its two ELF sections.

.tilec.meta = "TILECMET" u32 version, u32 0, u64 size, sha256 of the JSON, JSON       (little endian)
.tilec.ir   = "TILECIR\\0" u32 version, u32 0, u64 size, sha256 of the payload, payload
payload     = zlib(JSON {"texts": [printed tile IR...], "variants": [index of each variant id's text],
                   "roads": [texts of tilec.ir.roads...], "launches": [per variant id, those of launches]})
"""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tilec.codegen.image import Image
from tilec.ir.guards import Guard
from tilec.package.bindings.binds import bind_dims
from tilec.package.family import family_of_variant
from tilec.package.model import KernelRecord, PackageSpec, ParamRecord, VariantRecord
from tilec.package.places import ABI_VERSION
from tilec.package.text.escape import json_text
from tilec.portable.loader import MARKED, default_of

META_MAGIC, IR_MAGIC = b"TILECMET", b"TILECIR\0"
FORMAT_VERSION = 1
META_HEADER_SIZE = MARKED.size


def describe(spec: PackageSpec, targets: tuple[str, ...]) -> dict[str, object]:
    """The metadata without the build id. ``spec`` has its kernels sorted by name and their variants in
    dispatch order; variant ids count through the library."""
    first_id, kernels = 0, []
    for kernel in spec.kernels:
        kernels.append(_kernel(kernel, first_id))
        first_id += len(kernel.variants)
    return {
        "format": FORMAT_VERSION,
        "abi": ABI_VERSION,
        "name": spec.name,
        "version": spec.version,
        "host": spec.host.triple,
        "targets": list(targets),
        "tools": dict(spec.tools),
        "kernels": kernels,
    }


def to_json(metadata: Mapping[str, object]) -> bytes:
    """The bytes in the library: compact, keys in the order in which they were put."""
    return json_text(metadata, separators=(",", ":")).encode("utf-8")


def meta_section(text: bytes) -> bytes:
    """``.tilec.meta`` for the metadata ``text``."""
    return section(META_MAGIC, text)


def ir_section(spec: PackageSpec) -> bytes:
    """``.tilec.ir``: the IR text of every variant and the roads of every launch, equal texts once."""
    variants = [variant for kernel in spec.kernels for variant in kernel.variants]
    texts = _numbered(variant.ir_text for variant in variants)
    roads = _numbered(launch.roads for variant in variants for launch in variant.image.launches)
    payload = json.dumps(
        {
            "texts": list(texts),
            "variants": [texts[variant.ir_text] for variant in variants],
            "roads": list(roads),
            "launches": [[roads[launch.roads] for launch in variant.image.launches] for variant in variants],
        }
    )
    return section(IR_MAGIC, zlib.compress(payload.encode("utf-8"), 9))


def open_section(data: bytes, magic: bytes) -> bytes:
    """The checked content of a section. Raises ValueError naming what is wrong."""
    if len(data) < MARKED.size:
        raise ValueError("it is shorter than its header")
    found, version, _, size, digest = MARKED.unpack_from(data)
    if found != magic:
        raise ValueError("it does not start with its mark")
    if version != FORMAT_VERSION:
        raise ValueError(f"it has format {version}, known is {FORMAT_VERSION}")
    content = data[MARKED.size : MARKED.size + size]
    if len(content) != size:
        raise ValueError(f"{size} bytes are announced, {len(content)} are there")
    if hashlib.sha256(content).digest() != digest:
        raise ValueError("its content does not match its sha256")
    return content


def open_ir(data: bytes) -> list[str]:
    """The IR text of each variant id, from the bytes of ``.tilec.ir``. Raises ValueError."""
    content = json.loads(zlib.decompress(open_section(data, IR_MAGIC)))
    return [content["texts"][index] for index in content["variants"]]


def open_roads(data: bytes) -> list[list[str]]:
    """Per variant id the text of each launch's roads, from the bytes of ``.tilec.ir``; none in libraries that
    were built without. Raises ValueError."""
    content = json.loads(zlib.decompress(open_section(data, IR_MAGIC)))
    return [[content["roads"][index] for index in found] for found in content.get("launches", ())]


def _numbered(texts: Iterable[str]) -> dict[str, int]:
    """Different texts with their numbers."""
    return {text: number for number, text in enumerate(dict.fromkeys(texts))}


def section(magic: bytes, content: bytes) -> bytes:
    """``content`` behind the mark of its section, its format, its size and its digest."""
    return MARKED.pack(magic, FORMAT_VERSION, 0, len(content), hashlib.sha256(content).digest()) + content


def _kernel(kernel: KernelRecord, first_id: int) -> dict[str, object]:
    binds = bind_dims(kernel)
    return {
        "name": kernel.name,
        "doc": kernel.doc,
        "params": [_param(param) for param in kernel.params],
        "dims": [
            {"name": dim.name, "bits": dim.bits, "binds": [vars(bind) for bind in found]}
            for dim, found in zip(kernel.dims, binds, strict=False)
        ],
        "tolerance": dict(kernel.tolerance),
        **({} if kernel.backward is None else {"backward": dict(kernel.backward)}),
        **({} if kernel.layer is None else {"layer": _layer(kernel.layer)}),
        "variants": [_variant(variant, first_id + number) for number, variant in enumerate(kernel.variants)],
        **({"left_out": [_left_out(*each) for each in kernel.left_out]} if kernel.left_out else {}),
    }


def _layer(layer: Mapping[str, Any]) -> dict[str, object]:
    """As JSON has it, which knows no tuples."""
    return {**layer, "forward": list(layer["forward"])}


def _left_out(target: str, guards: Sequence[tuple[str, Guard]]) -> dict[str, object]:
    return {"target": target, "guards": {name: _guard(guard) for name, guard in guards}}


def _param(param: ParamRecord) -> dict[str, object]:
    return {
        "name": param.name,
        "kind": param.kind,
        "dtype": param.dtype,
        "access": param.access,
        "output": param.output,
        "extents": list(param.extents),
        "strides": None if param.strides is None else list(param.strides),
        "default": _default(param.default),
        **({"pointer": True} if param.pointer else {}),
        **({"may_overlap": True} if param.may_overlap else {}),
    }


def read_param(entry: Mapping[str, Any]) -> ParamRecord:
    """The record of a parameter of the metadata."""
    strides = entry["strides"]
    return ParamRecord(
        **{
            **entry,
            "extents": tuple(entry["extents"]),
            "strides": None if strides is None else tuple(strides),
            "default": default_of(entry),
        }
    )


def _default(value: float | bool | None) -> float | bool | str | None:
    """A scalar's default; JSON has no words for infinities and NaN."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _variant(variant: VariantRecord, number: int) -> dict[str, object]:
    image, family = variant.image, family_of_variant(variant)
    return {
        "id": number,
        "target": variant.target,
        **({} if family.on_host else {"device": family.device}),
        "guards": {name: _guard(guard) for name, guard in variant.guards},
        "align": dict(variant.align),
        "config": dict(variant.config),
        "config_source": variant.config_source,
        "source_sha256": variant.source_sha256,
        "image": {"sha256": image.sha256, "bytes": len(image.code), **_provenance(image)},
        "launches": [
            {
                "symbol": launch.symbol,
                "grid": list(launch.grid),
                "threads": list(launch.threads),
                "scratch_bytes": launch.scratch_bytes,
                "notes": list(launch.notes),
                **({"products": list(launch.products)} if launch.products else {}),
                **({"gpu": asdict(launch.gpu)} if launch.gpu else {}),
            }
            for launch in image.launches
        ],
        **({"needs": image.needs} if image.needs else {}),
        **({"takes_num_sms": True} if variant.takes_num_sms else {}),
        **_price(variant),
        **({"tolerance": dict(variant.tolerance)} if variant.tolerance else {}),
        "workspace": [{"name": piece.name, "bytes": piece.bytes} for piece in image.workspace],
    }


def _price(variant: VariantRecord) -> dict[str, object]:
    """The cost of a schedule, and the guards of its list where it has others beside them."""
    if not variant.cost:
        return {}
    listed = variant.listed_under
    if listed in (None, variant.guards):
        return {"cost": variant.cost}
    return {"cost": variant.cost, "listed_under": {name: _guard(guard) for name, guard in listed or ()}}


def _provenance(image: Image) -> dict[str, object]:
    """What made an image for a device, and the oldest driver that loads it, where that is known."""
    if not image.compiler:
        return {}
    if not image.min_driver:
        return {"compiler": image.compiler}
    driver = f"{image.min_driver // 1000}.{image.min_driver % 1000 // 10}"
    return {"compiler": image.compiler, "min_driver": driver}


def _guard(guard: Guard) -> dict[str, object]:
    """The manifest's spelling and the parts that are set."""
    return {"text": str(guard), **guard.parts}


def read_guards(variant: Mapping[str, Any]) -> dict[str, Guard]:
    """The guards of a variant of the metadata, by dim."""
    return _read_guards(variant["guards"])


def read_listed(variant: Mapping[str, Any]) -> dict[str, Guard] | None:
    """The guards of all of its list; None where these are its own."""
    return _read_guards(variant["listed_under"]) if "listed_under" in variant else None


def _read_guards(entries: Mapping[str, Any]) -> dict[str, Guard]:
    return {
        name: Guard(**{part: value for part, value in entry.items() if part != "text"})
        for name, entry in entries.items()
    }
