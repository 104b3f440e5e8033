"""Layers of torch that kernels compute, as `[kernel.layer]` of the manifest says: their checks, and the text
of ``layers.py`` in a folder for the kernel hub."""

from __future__ import annotations

import keyword
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilec.errors import PackageError, Place
from tilec.package.bindings.binds import hidden_dims
from tilec.package.model import KernelRecord, PackageSpec, ParamRecord
from tilec.package.text.escape import python_doc


@dataclass(frozen=True)
class Layer:
    """One layer and its ``kernels``, which are for different element types of its first tensor. ``forward``
    are the parameters that its forward takes, ``members`` those that the replaced layer has as attributes."""

    name: str
    kernels: tuple[KernelRecord, ...]
    forward: tuple[str, ...]
    members: dict[str, str]

    @property
    def first(self) -> KernelRecord:
        """A kernel of it: the others differ from it in element types alone."""
        return self.kernels[0]

    @property
    def lead(self) -> ParamRecord:
        """The tensor whose leading axes are joined."""
        return _lead(self.first, self.forward)


def layers_of(spec: PackageSpec) -> tuple[Layer, ...]:
    """The layers of a package by name. Raises PackageError for a table that does not fit its kernel."""
    by_name: dict[str, list[KernelRecord]] = {}
    for kernel in sorted(spec.kernels, key=lambda each: each.name):
        if kernel.layer is not None:
            _check(kernel, [*_problems(kernel, kernel.layer["forward"], kernel.layer["members"])])
            by_name.setdefault(kernel.layer["name"], []).append(kernel)
    return tuple(_layer(name, kernels) for name, kernels in sorted(by_name.items()))


def _layer(name: str, kernels: Sequence[KernelRecord]) -> Layer:
    table = kernels[0].layer
    assert table is not None
    made = Layer(name, tuple(kernels), tuple(table["forward"]), dict(table["members"]))
    dtypes: dict[str, KernelRecord] = {}
    for kernel in kernels:
        other = dtypes.setdefault(_lead(kernel, made.forward).dtype, kernel)
        differs = kernel.layer != table or _shapes(kernel) != _shapes(made.first)
        problems = [f"{other.name} is that layer for the same element type"] * (other is not kernel)
        _check(kernel, problems + [f"{made.first.name} has other parameters or another table"] * differs)
    return made


def _problems(kernel: KernelRecord, forward: Sequence[str], members: dict[str, str]) -> Iterator[str]:
    """What is in the way of a table."""
    inputs = {param.name: param for param in kernel.params if not param.output}
    given = [*forward, *members]
    yield from (f"{name} is no input of it" for name in given if name not in inputs)
    yield from (f"{name} is a word of Python" for name in given if keyword.iskeyword(name) or name == "self")
    yield from (f"{name} stands there twice" for name in sorted({n for n in given if given.count(n) > 1}))
    needed = [name for name, param in inputs.items() if param.default is None]
    yield from (f"{name} is in neither forward nor members" for name in needed if name not in given)
    yield from (f"it writes its input {name}" for name, param in inputs.items() if param.is_written)
    yield from (f"no input shows its dim {name}" for name in hidden_dims(kernel))
    if not any(param.output for param in kernel.params):
        yield "it returns nothing"
    if not any(name in inputs and inputs[name].extents for name in forward):
        yield "forward takes no tensor"


def _check(kernel: KernelRecord, problems: list[str]) -> None:
    if problems:
        raise PackageError(
            f"kernel {kernel.name!r} cannot be the layer {(kernel.layer or {})['name']!r}",
            place=Place(key=kernel.name),
            why="; ".join(problems),
            remedy="correct [kernel.layer]",
        )


def _lead(kernel: KernelRecord, forward: Sequence[str]) -> ParamRecord:
    params = {param.name: param for param in kernel.params}
    return next(params[name] for name in forward if params[name].extents)


def _shapes(kernel: KernelRecord) -> list[tuple[str, tuple[str, ...], tuple[str, ...] | None]]:
    return [(param.name, param.extents, param.strides) for param in kernel.params]


# ---- the text ----


def layer_text(layer: Layer) -> str:
    """The class of a layer."""
    lead, by_dtype = layer.lead, f"_{layer.name}"
    table = {_lead(each, layer.forward).dtype: each.name for each in layer.kernels}
    pairs = ", ".join(f'"{dtype}": "{name}"' for dtype, name in table.items())
    backward = all(kernel.backward is not None for kernel in layer.kernels)
    given = ", ".join(f"{param.name}={_value(layer, param)}" for param in _given(layer))
    outputs = [param for param in layer.first.params if param.output]
    made = [f"made_[{at}]" for at in range(len(outputs))] if len(outputs) > 1 else ["made_"]
    returned = ", ".join(_result(layer, *each) for each in zip(outputs, made, strict=True))
    return f'''
{by_dtype} = _by_dtype({{{pairs}}})


class {layer.name}(nn.Module):
    """{python_doc(layer.first.doc or layer.first.name)}"""

    can_torch_compile = True
    has_backward = {backward}

    def forward(self, {", ".join(layer.forward)}):
        made_ = _chosen("{layer.name}", {by_dtype}, {lead.name})({given})
        return {returned}
'''


def _given(layer: Layer) -> list[ParamRecord]:
    return [each for each in layer.first.params if each.name in {*layer.forward, *layer.members}]


def _value(layer: Layer, param: ParamRecord) -> str:
    """The text of an argument: a tensor as the kernel takes it, without a copy where it lies so already."""
    if param.name in layer.members:
        return f"self.{layer.members[param.name]}"
    value = param.name
    if _is_joined(layer, param):
        value = f"_joined({value}, {len(param.extents)})"
    return f"{value}.contiguous()" if param.is_tensor and param.strides is None else value


def _result(layer: Layer, param: ParamRecord, text: str) -> str:
    """The text of an output, with the axes of its input."""
    lead = layer.lead
    return f"_spread({text}, {lead.name}, {len(lead.extents)})" if _is_joined(layer, param) else text


def _is_joined(layer: Layer, param: ParamRecord) -> bool:
    """Whether its first axis is that of the tensor whose leading axes are joined."""
    return bool(param.extents) and param.extents[0] == layer.lead.extents[0]
