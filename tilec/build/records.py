"""Compiled variants as plain data: what crosses from a compile process and what the cache keeps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tilec.build.elaborated.asked import remarks_on_roads
from tilec.build.elaborated.frontend import elaborate_variant, naming
from tilec.build.elaborated.idle_keys import idle_on_cpus
from tilec.build.reuse.images import image_of, read_image
from tilec.build.reuse.kept_code import Origin, find_code, origin_of
from tilec.build.reuse.kept_remarks import places_of, read_remark, remark_fields
from tilec.cache import Store
from tilec.errors import Remark
from tilec.ir.guards import Guard
from tilec.ir.num_sms import takes_num_sms
from tilec.ir.roads import decode as decode_roads
from tilec.manifest import Variant
from tilec.manifest.sources import source_sha256
from tilec.package.model import DimRecord, ParamRecord, Signature, VariantRecord


@dataclass(frozen=True)
class CompiledVariant:
    """A variant with its kernel's signature. ``files`` are the Python files that it was made from, each with
    the sha256 of its text (`loaded_files`); empty when it came out of the cache. ``remarks`` are what its
    author is to be told. ``origin``: what its code was compiled from; None where the code is from the cache.
    ``idle``: the schedule keys of its config that CPUs do not obey. ``kinds``: those of its factory's
    parameters (`tilec.build.elaborated.value_kinds`)."""

    signature: Signature
    record: VariantRecord
    files: Mapping[Path, str] = field(default_factory=dict)
    remarks: tuple[Remark, ...] = ()
    origin: Origin | None = None
    idle: tuple[str, ...] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)


def compile_one(variant: Variant, made: Store | None = None, kept: Store | None = None) -> CompiledVariant:
    """Elaborates, lowers and compiles one variant; runs in a compile process. ``made``: where other variants
    of the same build find its code; ``kept``: the cache, which may have that of its tile IR."""
    from tilec.ir.text.printer import format_kernel
    from tilec.package.model import signature

    kernel, files, remarks, kinds = elaborate_variant(variant)
    with naming(variant):
        ir_text = format_kernel(kernel)
        origin = origin_of(kernel, ir_text, variant.target)
        found = None if kept is None else find_code(kept, origin)
        image = found or image_of(kernel, variant.target, made)
        record = VariantRecord(
            target=variant.target.name,
            guards=restricted(variant),
            image=image,
            ir_text=ir_text,
            source_sha256=source_sha256(variant.source, variant.base),
            takes_num_sms=takes_num_sms(kernel),
            **_listing(variant),
        )
        roads = [road for launch in image.launches for road in decode_roads(launch.roads)]
        remarks = (*remarks, *remarks_on_roads(kernel, variant, roads))
        made_from, idle = None if found else origin, idle_on_cpus(kernel, variant)
        return CompiledVariant(signature(kernel), record, files, remarks, made_from, idle, kinds)


def as_listed(compiled: CompiledVariant, variant: Variant) -> CompiledVariant:
    """What was compiled of a variant with the same `spec_text`, with what is told of this one alone."""
    return replace(compiled, files={}, record=replace(compiled.record, **_listing(variant)))


def _listing(variant: Variant) -> dict[str, Any]:
    """What a record has of a variant that neither decides its code nor is a key of the cache."""
    return {
        "config": dict(variant.config),
        "config_source": variant.config_source,
        "cost": variant.cost,
        "listed_under": listed_under(variant),
        "tolerance": dict(variant.tolerance),
    }


def restricted(variant: Variant) -> tuple[tuple[str, Guard], ...]:
    """The guards that refuse some value."""
    return _that_refuse(variant.dims)


def listed_under(variant: Variant) -> tuple[tuple[str, Guard], ...] | None:
    """The same of the list of schedules that the variant is from."""
    return None if variant.listed_under is None else _that_refuse(variant.listed_under)


def _that_refuse(guards: Mapping[str, Guard]) -> tuple[tuple[str, Guard], ...]:
    return tuple((name, guard) for name, guard in guards.items() if not guard.is_dynamic)


def spec_text(variant: Variant) -> str:
    """All that decides a variant's code, or refuses it, beside the text of its sources and tilec itself."""
    spec = {
        "kernel": variant.kernel,
        "source": variant.source,
        "target": variant.target.name,
        "triple": variant.target.triple,
        "dims": {name: str(guard) for name, guard in variant.dims.items()},
        "args": variant.args,
        "config": variant.config,
    }
    if variant.outputs is not None:
        spec["outputs"] = variant.outputs
    return json.dumps(spec, default=str)


def encode(compiled: CompiledVariant, variant: Variant) -> bytes:
    """As bytes: a line of JSON, then the machine code. Files are named beside the manifest's folder, so that
    a moved project keeps its entries."""
    bare = replace(
        compiled.record,
        image=replace(compiled.record.image, code=b""),
        config={},
        config_source="",
        cost="",
        listed_under=None,
        tolerance={},
    )
    head: dict[str, Any] = {"signature": asdict(compiled.signature), "record": asdict(bare)}
    head["record"]["image"]["code"] = ""
    head["remarks"] = [remark_fields(remark, places_of(variant), variant.base) for remark in compiled.remarks]
    head["idle"] = compiled.idle
    head["kinds"] = compiled.kinds
    return json.dumps(head).encode() + b"\n" + compiled.record.image.code


def decode(data: bytes, variant: Variant) -> CompiledVariant:
    """The inverse; config and its source are the variant's."""
    head, _, code = data.partition(b"\n")
    fields = json.loads(head)
    record = VariantRecord(
        **{
            **fields["record"],
            "guards": tuple((name, Guard(**guard)) for name, guard in fields["record"]["guards"]),
            "image": read_image(fields["record"]["image"], code),
            "align": tuple((name, value) for name, value in fields["record"]["align"]),
            **_listing(variant),
        }
    )
    remarks = tuple(read_remark(one, places_of(variant), variant.base) for one in fields["remarks"])
    signature = _signature(fields["signature"])
    idle, kinds = tuple(fields["idle"]), fields["kinds"]
    return CompiledVariant(signature, record, {}, remarks, idle=idle, kinds=kinds)


def _signature(fields: dict[str, Any]) -> Signature:
    params = (
        ParamRecord(
            **{
                **one,
                "extents": tuple(one["extents"]),
                "strides": None if one["strides"] is None else tuple(one["strides"]),
            }
        )
        for one in fields["params"]
    )
    return Signature(tuple(params), tuple(DimRecord(**one) for one in fields["dims"]), fields["doc"])
