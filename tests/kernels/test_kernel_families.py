"""The kernels of kernels.toml against their NumPy references: interpreted, called in process with torch
tensors, lowered for GPUs; with ``-m emulate`` also run on the emulated ones."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilec.backends.cuda.emit.entry import lower_kernel
from tilec.backends.pipeline import lower
from tilec.emulate import EmulatedKernel
from tilec.ir.guards import Guard
from tilec.ir.nodes import Kernel
from tilec.language.frontend.elaborate import elaborate, load_entry
from tilec.language.frontend.jitted import JitFunction
from tilec.manifest import KernelPlan, load_manifest
from tilec.targets import parse_target
from tilec.trials.arrays import guarded
from tilec.trials.comparison import compare
from tilec.trials.facts import KernelFacts, facts_of
from tilec.trials.oracle import Author, Expectation, Oracle, authors

FOLDER = Path(__file__).parent
MANIFEST = FOLDER / "kernels.toml"
PLANS = {plan.name: plan for plan in load_manifest(MANIFEST).kernels}
GPUS = ("sm_80", "sm_90a")

#: Values of dims that are open in the manifest; DEFAULT for the others.
OPEN = {
    "batch": 2, "B": 2, "rows": 17, "seq_len": 40, "seq_len_kv": 13, "Sq": 19, "total": 70, "nnz_s": 2,
    "row_blocks": 3, "places": 112, "blocks": 7, "ldx": 64, "UQ": 40, "UKV": 61, "batch_size": 3,
}  # fmt: skip
DEFAULT = 21

every_kernel = pytest.mark.parametrize("name", PLANS)


class Case:
    """A kernel of the manifest at one shape, with what its outputs should be."""

    def __init__(self, plan: KernelPlan) -> None:
        variant = plan.variants[0]
        self.entry: Any = load_entry(plan.entry.source, FOLDER)
        self.guards: Mapping[str, Guard] = variant.dims
        self.options = {**variant.args, **variant.config}
        self.kernel: Kernel = elaborate(
            self.entry, name="kernel", dims=self.guards, args=variant.args, config=variant.config
        )
        self.dims = {name: self._size(name, guard) for name, guard in self.guards.items()}
        self.facts: KernelFacts = facts_of(self.kernel, "x86-64-v3")
        author = known_authors()[plan.name]
        oracle = Oracle(self.facts, Author(inputs=author.inputs, tolerance=author.tolerance))
        self.author = author
        self.interpreted = oracle.expect(self.facts.variants[0], self.dims, seed=3)
        assert not self.interpreted.problem, self.interpreted.problem
        found = Oracle(self.facts, author).referred(self.interpreted.values)
        assert found is not None, f"the reference of {plan.name} does not take these inputs"
        self.expected: Expectation = found

    @staticmethod
    def _size(name: str, guard: Guard) -> int:
        return OPEN.get(name, DEFAULT) if guard.eq is None else guard.eq

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

    def check(self, outputs: Mapping[str, np.ndarray], target: str = "x86-64-v3") -> None:
        """Every written tensor is what the reference says, as near as code for ``target`` comes to it."""
        facts = facts_of(self.kernel, target)
        tolerance = Oracle(facts, self.author).tolerance(facts.variants[0])
        problems = [
            compare(name, np.asarray(outputs[name]), np.asarray(wanted), tolerance).text
            for name, wanted in self.expected.outputs.items()
        ]
        assert not any(problems), "\n".join(filter(None, problems))


@cache
def known_authors() -> dict[str, Author]:
    return authors(MANIFEST)


@cache
def case_of(name: str) -> Case:
    return Case(PLANS[name])


def call(case: Case) -> dict[str, np.ndarray]:
    """The arguments after a call with torch tensors, results in place of those that the call made."""
    torch = pytest.importorskip("torch")
    numpy_arrays = case.arrays()
    tensors = {name: torch_value(torch, value) for name, value in numpy_arrays.items()}
    kernel: JitFunction = case.entry
    parameters = inspect.signature(kernel.func).parameters
    if kernel.is_lazy_mode():
        made = kernel(
            **{name: size for name, size in case.dims.items() if name in parameters}, **case.options
        )
        names = list(tensors)
        wanted = made.out_idx if isinstance(made.out_idx, (list, tuple)) else [made.out_idx]
        returned = [names[index] for index in wanted if index is not None]
        found = made(*(tensor for name, tensor in tensors.items() if name not in returned))
    else:
        returned = [name for name in case.expected.outputs if name not in parameters]
        sizes = {name: size for name, size in case.dims.items() if name in parameters and name not in tensors}
        given = (tensors[name] for name in tensors if name not in returned)
        found = kernel(*given, **sizes, **case.options)
    tensors.update(zip(returned, found if isinstance(found, (list, tuple)) else [found], strict=True))
    return {name: numpy_value(torch, tensor, numpy_arrays[name]) for name, tensor in tensors.items()}


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


@every_kernel
def test_the_interpreter_agrees_with_the_reference(name: str) -> None:
    case = case_of(name)
    case.check(case.interpreted.outputs)


@every_kernel
def test_a_call_with_torch_tensors_agrees_with_the_reference(name: str) -> None:
    case = case_of(name)
    case.check(call(case))


@every_kernel
def test_kernels_lower_for_gpus(name: str) -> None:
    for target in map(parse_target, GPUS):
        assert lower_kernel(lower(case_of(name).kernel, target), target).launches


@pytest.mark.emulate
@pytest.mark.parametrize("target", GPUS)
@every_kernel
def test_emulated_gpus_agree_with_the_reference(name: str, target: str) -> None:
    case, args = case_of(name), case_of(name).arrays()
    EmulatedKernel(case.kernel, parse_target(target))(list(args.values()), case.dims)
    case.check(args, target)


def test_no_family_is_thin() -> None:
    """Four of each at the least; examples/kernels has more of decode and attention."""
    count = Counter(plan.entry.source.split(".py:")[0] for plan in PLANS.values())
    assert min(count.values()) >= 4, count


#: Entry, dims, config: tiles as large as kernels of models have them.
LARGE = [
    (
        "latent_attention.py:mla_decode",
        {"batch": 1, "heads": 64, "kv_head_num": 1, "seqlen_kv": 128, "dim": 512, "pe_dim": 64},
        {"block_N": 64, "block_H": 64},
    ),
    (
        "latent_attention.py:sparse_mla_fwd",
        {"batch": 1, "seq_len": 2, "seq_len_kv": 128, "heads": 64, "dim": 512, "tail_dim": 64},
        {"topk": 128, "block_I": 64, "threads": 256},
    ),
    (
        "attention_backward.py:gqa_bwd",
        {"batch": 1, "heads": 4, "seq_len": 256, "dim_qk": 192, "dim_v": 128},
        {"block_M": 128, "block_N": 32},
    ),
]


@pytest.mark.parametrize(("entry", "dims", "config"), LARGE, ids=[each[0] for each in LARGE])
def test_large_tiles_fit_a_block(entry: str, dims: dict[str, int], config: dict[str, int]) -> None:
    guards = {name: Guard(eq=size) for name, size in dims.items()}
    kernel = elaborate(load_entry(entry, FOLDER), name="kernel", dims=guards, args={}, config=config)
    target = parse_target("sm_90a")
    assert lower_kernel(lower(kernel, target), target).launches
