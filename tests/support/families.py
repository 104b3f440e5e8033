"""Kernels of a manifest against their NumPy references: at small sizes, interpreted, called in process with
torch tensors, run on emulated GPUs."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from operand_registers import find_nvdisasm, overwritten

from tilec.backends.cuda.codegen import images as cuda
from tilec.backends.cuda.emit.entry import lower_kernel
from tilec.backends.pipeline import lower
from tilec.build.library import build
from tilec.codegen.image import Image
from tilec.emulate import EmulatedKernel
from tilec.ir.nodes import Kernel
from tilec.language.frontend.elaborate import elaborate, load_entry
from tilec.language.frontend.jitted import JitFunction
from tilec.manifest import KernelPlan, Variant, load_manifest
from tilec.portable.loader import Library, load
from tilec.targets import Target
from tilec.trials.arrays import guarded
from tilec.trials.comparison import compare
from tilec.trials.facts import KernelFacts, facts_of
from tilec.trials.oracle import Author, Expectation, Oracle, authors

#: Where kernels of a library are called.
CPU = "x86-64-v3"


class Suite:
    """The kernels of ``manifest``. ``sizes``: values of dims that it leaves open, of every kernel or, under a
    kernel's name, of that one; ``default`` is the value of the others."""

    def __init__(self, manifest: Path, sizes: Mapping[str, Any], default: int) -> None:
        self.manifest, self.name = manifest, manifest.stem
        self.plans: dict[str, KernelPlan] = {plan.name: plan for plan in load_manifest(manifest).kernels}
        self.on_cpus = [name for name, plan in self.plans.items() if on_cpus(plan)]
        self.on_gpus = [(name, target) for name, plan in self.plans.items() for target in gpus_of(plan)]
        self._sizes, self._default = sizes, default
        self._authors = cache(lambda: authors(manifest))
        self.case = cache(self._case)

    def library(self, folder: Path, names: Sequence[str] | None = None, target: str = CPU) -> Library:
        """Its kernels for a CPU, or those ``names``, built into ``folder`` as the manifest says."""
        wanted = self.on_cpus if names is None else list(names)
        return load(build(self.manifest, folder, targets=[target], kernels=wanted).report.library)

    def _case(self, name: str) -> Case:
        """The kernel ``name``, elaborated once."""
        return Case(self.plans[name], self.manifest.parent, self._authors()[name], self._dims(name))

    def _dims(self, name: str) -> dict[str, int]:
        own = {**self._sizes, **self._sizes.get(name, {})}
        guards = self.plans[name].variants[0].dims
        dims = {
            dim: own.get(dim, self._default) if guard.eq is None else guard.eq
            for dim, guard in guards.items()
        }
        refused = {dim: size for dim, size in dims.items() if not guards[dim].admits(size)}
        assert not refused, f"{name}: sizes that its guards refuse: {refused}"
        return dims


class Case:
    """A kernel of a manifest at one shape, with what its outputs should be."""

    def __init__(self, plan: KernelPlan, folder: Path, author: Author, dims: dict[str, int]) -> None:
        variant = plan.variants[0]
        self.entry: Any = load_entry(plan.entry.source, folder)
        self.options = {**variant.args, **variant.config}
        self.kernel = self._kernel(variant)
        self.dims, self.author = dims, author
        self._plan = plan
        self.image = cache(self._image)
        self.facts: KernelFacts = facts_of(self.kernel, CPU)
        oracle = Oracle(self.facts, Author(inputs=author.inputs, tolerance=author.tolerance))
        self.interpreted = oracle.expect(self.facts.variants[0], self.dims, seed=3)
        self.expected = self._referred(Oracle(self.facts, author))
        assert self.expected.oracle == "reference", f"the reference of {plan.name} does not take these inputs"

    def _kernel(self, variant: Variant) -> Kernel:
        """The tile IR of one variant."""
        return elaborate(
            self.entry, name="kernel", dims=variant.dims, args=variant.args, config=variant.config
        )

    def kernel_on(self, target: Target) -> Kernel:
        """What the manifest says of ``target``: its first variant there."""
        return self._kernel(next(each for each in self._plan.variants if each.target == target))

    def _image(self, target: Target) -> Image:
        """Its machine code for a GPU, compiled once."""
        lowered = lower_kernel(lower(self.kernel_on(target), target), target)
        return cuda.compile_kernel(lowered, target, "k")

    def _referred(self, oracle: Oracle) -> Expectation:
        """What the reference gives for the same inputs; those of a kernel that only GPUs can run are new."""
        problem = self.interpreted.problem
        assert not (problem and on_cpus(self._plan)), problem
        if problem:
            return oracle.expect(self.facts.variants[0], self.dims, seed=3)
        found = oracle.referred(self.interpreted.values)
        return self.interpreted if found is None else found

    def check_interpreted(self) -> None:
        """The interpreter says what the reference says, where it has a meaning for the kernel."""
        if self.interpreted.problem:
            pytest.skip(self.interpreted.problem)
        self.check(self.interpreted.outputs)

    def arrays(self) -> dict[str, Any]:
        """Arguments in kernel order; tensors that are only written hold NaN or a pattern."""
        values = self.expected.values
        made: dict[str, Any] = {}
        for param in self.facts.params:
            made[param.name] = values.get(param.name)
            if param.is_tensor:
                made[param.name] = guarded(param, self.dims).array
                if param.name in values:
                    made[param.name][...] = values[param.name]
        return made

    def check(self, outputs: Mapping[str, np.ndarray], target: str = CPU) -> None:
        """Every written tensor is what the reference says, as near as code for ``target`` comes to it."""
        facts = facts_of(self.kernel, target)
        tolerance = Oracle(facts, self.author).tolerance(facts.variants[0])
        problems = [
            compare(name, np.asarray(outputs[name]), np.asarray(wanted), tolerance).text
            for name, wanted in self.expected.outputs.items()
        ]
        assert not any(problems), "\n".join(filter(None, problems))

    def check_lowered(self, target: Target) -> str:
        """It becomes launches on a GPU of its manifest. A line for each: kinds of roads, how many take each;
        then what statements lost."""
        launches = lower_kernel(lower(self.kernel_on(target), target), target).launches
        assert launches
        lines = []
        for launch in launches:
            kinds = Counter(road.kind for road in launch.roads)
            lines.append(", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items())))
            lines += sorted(
                f"  lost: {road.statement}: {road.loss.condition}" for road in launch.roads if road.loss
            )
        return "\n".join(lines) + "\n"

    def check_runs_on(self, target: Target) -> None:
        """The assembler lets its products run on while others are issued."""
        launches = self.image(target).launches
        assert not any("serialized" in str(launch.roads) for launch in launches)

    def check_operands_stay(self, target: Target) -> None:
        """No instruction overwrites what a product under way reads from registers."""
        nvdisasm = find_nvdisasm()
        if nvdisasm is None:
            pytest.skip("nvdisasm is not installed: pip install nvidia-cuda-nvdisasm")
        assert not overwritten(self.image(target).code, nvdisasm)

    def check_emulated(self, target: Target) -> None:
        """The emulated GPU says what the reference says."""
        args = self.arrays()
        EmulatedKernel(self.kernel_on(target), target)(list(args.values()), self.dims)
        self.check(args, target.name)

    def called_in(self, library: Library) -> dict[str, np.ndarray]:
        """The arguments after a call of the kernel in a library of its manifest."""
        arrays = self.arrays()
        library.kernels[self._plan.name](**self.dims, **arrays)
        return arrays

    def called(self) -> dict[str, np.ndarray]:
        """The arguments after a call with torch tensors, results in place of those that the call made."""
        torch = pytest.importorskip("torch")
        numpy_arrays = self.arrays()
        tensors = {name: torch_value(torch, value) for name, value in numpy_arrays.items()}
        kernel: JitFunction = self.entry
        parameters = inspect.signature(kernel.func).parameters
        if kernel.is_lazy_mode():
            made = kernel(
                **{name: size for name, size in self.dims.items() if name in parameters}, **self.options
            )
            names = list(tensors)
            wanted = made.out_idx if isinstance(made.out_idx, (list, tuple)) else [made.out_idx]
            returned = [names[index] for index in wanted if index is not None]
            found = made(*(tensor for name, tensor in tensors.items() if name not in returned))
        else:
            returned = [name for name in self.expected.outputs if name not in parameters]
            sizes = {
                name: size for name, size in self.dims.items() if name in parameters and name not in tensors
            }
            given = (tensors[name] for name in tensors if name not in returned)
            found = kernel(*given, **sizes, **self.options)
        tensors.update(zip(returned, found if isinstance(found, (list, tuple)) else [found], strict=True))
        return {name: numpy_value(torch, tensor, numpy_arrays[name]) for name, tensor in tensors.items()}


def title(value: Any) -> str:
    """A suite, kernel or target in the name of a test."""
    return str(getattr(value, "name", value))


def on_cpus(plan: KernelPlan) -> bool:
    """Whether its manifest makes a kernel for a CPU."""
    return any(variant.target.is_cpu for variant in plan.variants)


def gpus_of(plan: KernelPlan) -> list[Target]:
    """The GPUs for which its manifest makes a kernel."""
    return list(dict.fromkeys(variant.target for variant in plan.variants if not variant.target.is_cpu))


def torch_value(torch: Any, value: Any) -> Any:
    """A tensor with the array's bits; numbers as they are."""
    if not isinstance(value, np.ndarray):
        return value
    name = value.dtype.name
    plain = {"bfloat16": np.int16}.get(name, np.int8 if name.startswith("float8") else value.dtype)
    return torch.from_numpy(np.array(value).view(plain)).view(getattr(torch, name))


def numpy_value(torch: Any, tensor: Any, like: Any) -> Any:
    """The other way."""
    if not isinstance(tensor, torch.Tensor):
        return tensor
    plain = {2: torch.int16, 1: torch.int8}.get(tensor.element_size() if tensor.is_floating_point() else 0)
    return (tensor if plain is None else tensor.view(plain)).numpy().view(like.dtype)
