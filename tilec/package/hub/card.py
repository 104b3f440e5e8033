"""The card of a folder for the kernel hub: what people read of it there."""

from __future__ import annotations

from collections.abc import Sequence

from tilec.package.bindings.binds import hidden_dims
from tilec.package.family import all_variants
from tilec.package.hub.layers import Layer, layers_of
from tilec.package.hub.names import by_name, function_name, hub_name, hub_version, identity
from tilec.package.model import KernelRecord, PackageSpec, ParamRecord
from tilec.package.templates import render
from tilec.package.text.escape import line
from tilec.spelling import quoted


def card(specs: Sequence[PackageSpec], build_id: str) -> str:
    """The text of README.md."""
    spec = specs[0]
    kernels, found = by_name(spec), layers_of(spec)
    targets = dict.fromkeys(variant.target for each in specs for variant in all_variants(each))
    return render(
        "hub_card.md",
        license=f"license: {line(spec.license)}\n" if spec.license else "",
        title=hub_name(spec.name),
        module=spec.name,
        major=hub_version(spec),
        targets="`, `".join(targets),
        hosts=", ".join(f"{each.host.system.title} on {each.host.arch}" for each in specs),
        namespace=identity(spec, build_id),
        example=function_name(kernels[0]),
        arguments=", ".join(param.name for param in kernels[0].params if not param.output),
        functions="\n".join(map(_function_row, kernels)),
        layers=_layers_part(found),
        version=line(spec.version),
        build_id=build_id,
    )


def _function_row(kernel: KernelRecord) -> str:
    inputs = [_param(each) for each in kernel.params if not each.output]
    outputs = [_param(each) for each in kernel.params if each.output]
    inputs += [f"{name} (keyword)" for name in hidden_dims(kernel)]
    what = line(kernel.doc).replace("|", "\\|")
    return f"| `{function_name(kernel)}` | {quoted(inputs)} | {quoted(outputs)} | {what} |"


def _param(param: ParamRecord) -> str:
    shape = f"[{', '.join(param.extents)}]" if param.is_tensor else ""
    return f"{param.name} {param.dtype}{shape}"


def _layers_part(found: Sequence[Layer]) -> str:
    if not found:
        return ""
    rows = "\n".join(map(_layer_row, found))
    return f"\n## Layers\n\n| layer | forward takes | it reads |\n|---|---|---|\n{rows}\n"


def _layer_row(layer: Layer) -> str:
    members = quoted(f"self.{name}" for name in layer.members.values())
    return f"| `{layer.name}` | {quoted(layer.forward)} | {members} |"
