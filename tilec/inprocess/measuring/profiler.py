"""`Profiler`: a kernel beside a reference on supplied inputs, and how long both take."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilec.errors import SourceValueError
from tilec.families import family_of, host_family
from tilec.inprocess.measuring.bench import do_bench
from tilec.inprocess.measuring.inputs import (
    TensorSupplyType,
    get_tensor_supply,
    mismatches,
    same_bits,
    shape_of,
    with_dims,
)
from tilec.inprocess.params import KernelParam
from tilec.spelling import counted


class Profiler:
    """``params``: all parameters of the kernel; ``result_idx``: which of them it returns; ``adapter``: what
    is called with the others."""

    def __init__(
        self,
        params: Sequence[KernelParam],
        result_idx: Sequence[int],
        supply_type: TensorSupplyType = TensorSupplyType.Auto,
        adapter: Any = None,
    ) -> None:
        self.params = list(params)
        self.result_idx = list(result_idx)
        self.supply_type = supply_type
        self.adapter = adapter

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The kernel."""
        return self.adapter(*args, **kwargs)

    @property
    def func(self) -> Any:
        """What `__call__` calls: the kernel."""
        return self.adapter

    def run_once(self, func: Callable[..., Any] | None = None) -> Any:
        """One call of ``func`` (default: the kernel) on supplied inputs."""
        return (func or self.adapter)(*self.inputs())

    def inputs(self, dims: Mapping[str, int] | None = None) -> list[Any]:
        """A tensor per parameter that is no result. Raises ValueError for scalars, and for runtime extents
        that ``dims`` does not name."""
        given = [param for index, param in enumerate(self.params) if index not in self.result_idx]
        supply = get_tensor_supply(self.supply_type, self.device)
        return [supply(param) for param in with_dims(given, dims or {})]

    @property
    def device(self) -> str:
        """Where the kernel's tensors lie: "cpu" or "cuda"."""
        target = getattr(self.adapter, "target", None)
        return (host_family() if target is None else family_of(target)).device

    def assert_allclose(
        self,
        reference_program: Callable[..., Any],
        input_tensors: Sequence[Any] | None = None,
        atol: float = 1e-2,
        rtol: float = 1e-2,
        max_mismatched_ratio: float = 0.01,
    ) -> None:
        """Runs both on the same inputs. Raises AssertionError when the numbers of outputs differ, or more
        than the ratio of an output's elements; None on either side is skipped."""
        outs, refs = self._both(reference_program, input_tensors)
        assert len(outs) == len(refs), (
            f"the kernel returns {counted(len(outs), 'output')}, the reference {len(refs)}"
        )
        for number, (out, ref) in enumerate(zip(outs, refs, strict=True)):
            if out is None or ref is None:
                continue
            shape, wanted = shape_of(out), shape_of(ref)
            assert shape == wanted, f"output {number} has shape {shape}, not {wanted}"
            wrong, worst = mismatches(out, ref, rtol, atol)
            size = math.prod(shape)
            allowed = max_mismatched_ratio * max(size, 1)
            assert wrong <= allowed, f"output {number}: {wrong} of {size} elements differ; {worst}"

    def manual_assert_close(
        self,
        reference_program: Callable[..., Any],
        input_tensors: Sequence[Any] | None = None,
        manual_check_prog: Callable[..., Any] | None = None,
    ) -> None:
        """Hands the outputs of both to ``manual_check_prog``. Raises ValueError without one."""
        if manual_check_prog is None:
            raise SourceValueError("manual_assert_close needs manual_check_prog", remedy="give a function")
        manual_check_prog(*self._both(reference_program, input_tensors))

    def assert_consistent(self, repeat: int = 10) -> None:
        """Raises AssertionError unless ``repeat`` calls on the same inputs give the same bits."""
        inputs = self.inputs()
        first = _listed(self.adapter(*inputs))
        for _ in range(repeat - 1):
            again = _listed(self.adapter(*inputs))
            for one, other in zip(first, again, strict=True):
                assert same_bits(one, other), "two calls on the same inputs gave different outputs"

    def do_bench(
        self,
        func: Callable[..., Any] | None = None,
        warmup: float = 25,
        rep: float = 100,
        n_warmup: int = 0,
        n_repeat: int = 0,
        input_tensors: Sequence[Any] | None = None,
        backend: str = "event",
        quantiles: Sequence[float] | None = None,
        return_mode: str = "mean",
        dynamic_symbolic_constraints: Mapping[str, int] | None = None,
        device: Any = None,
        early_stop_baseline: float | None = None,
    ) -> float | list[float]:
        """Milliseconds of ``func`` (default: the kernel), as `tilec.do_bench`. Runtime extents come from
        ``dynamic_symbolic_constraints``; ValueError if one is missing."""
        called = func or self.adapter
        inputs = self.inputs(dynamic_symbolic_constraints) if input_tensors is None else list(input_tensors)
        return do_bench(
            lambda: called(*inputs),
            warmup=warmup,
            rep=rep,
            _n_warmup=n_warmup,
            _n_repeat=n_repeat,
            quantiles=quantiles,
            backend=backend,
            return_mode=return_mode,
            device=device or self.device,
            early_stop_baseline=early_stop_baseline,
        )

    def _both(
        self, reference: Callable[..., Any], inputs: Sequence[Any] | None
    ) -> tuple[list[Any], list[Any]]:
        """The outputs of kernel and reference; a reference sees the inputs as they were before the kernel."""
        given = self.inputs() if inputs is None else list(inputs)
        expected = _listed(reference(*given))
        return _listed(self.adapter(*given)), expected


def _listed(outputs: Any) -> list[Any]:
    if outputs is None:
        return []
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
