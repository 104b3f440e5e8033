"""What the checks of this folder share: their list, the library, inputs, comparison with torch."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).resolve().parent
#: The checks of this process's group, in the order of their file.
CHECKS: list[Check] = []


class LeftOut(Exception):
    """This machine lacks what a check needs."""


@dataclass(frozen=True)
class Check:
    """``run`` raises where something is wrong, and may return a word on what it found."""

    name: str
    run: Callable[[Env], str | None]


def check(name: str, *, cuda: bool = False) -> Callable[[Callable[[Env], str | None]], Any]:
    """Puts a function among the checks; ``cuda``: on a GPU alone."""

    def add(function: Callable[[Env], str | None]) -> Any:
        def run(env: Env) -> str | None:
            if cuda and env.device == "cpu":
                raise LeftOut("it is about GPUs")
            made = function(env)
            env.synchronize()
            return made

        CHECKS.append(Check(name, run))
        return function

    return add


class Env:
    """The device of the checks, and the doors that are opened when they are asked for."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.generator = torch.Generator(device).manual_seed(0)

    @cached_property
    def package(self) -> Any:
        """The package of Python that the build wrote."""
        sys.path.insert(0, str(HERE / "python"))
        import doors

        return doors

    @property
    def library(self) -> Any:
        """Its kernels by name, for calls of the loader."""
        return self.package.library

    @cached_property
    def ops(self) -> Any:
        """Its operators of torch."""
        self.package.register_torch_ops()
        return torch.ops.doors

    def random(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Numbers of mean 0 and deviation 1."""
        made = torch.randn(shape, device=self.device, generator=self.generator)
        return made.to(dtype)

    def synchronize(self) -> None:
        """Waits for the device."""
        if self.device == "cuda":
            torch.cuda.synchronize()


#: Norm of a difference over that of what is wanted, by what results are rounded to.
NEAR = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}


def agree(found: Any, wanted: Any, *, dtype: torch.dtype | None = None) -> None:
    """Raises AssertionError where a result differs from what is wanted by more than its type rounds, or in
    shape, device or type; ``dtype``: the type that is wanted, where ``wanted`` is more exact."""
    dtype = dtype or wanted.dtype
    facts = (found.shape, found.dtype, found.device)
    assert facts == (wanted.shape, dtype, wanted.device), (
        f"{facts} for {(wanted.shape, dtype, wanted.device)}"
    )
    if not wanted.numel():
        return
    found, wanted = found.detach().double(), wanted.detach().double()
    off = float((found - wanted).norm() / wanted.norm())
    assert off < NEAR[dtype], f"the relative error is {off:.3g}"


def refused(word: str, call: Callable[..., Any], *args: Any, **named: Any) -> None:
    """Raises AssertionError unless a call raises an Exception whose text has ``word``."""
    found = error_of(call, *args, **named)
    assert found is not None, "it was not refused"
    assert word in str(found), f"{type(found).__name__} without {word}: {found}"


def error_of(call: Callable[..., Any], *args: Any, **named: Any) -> Exception | None:
    """What a call raises; None where it returns."""
    try:
        call(*args, **named)
    except Exception as error:
        return error
    return None


def error_text(error: Exception) -> str:
    """An error's class, its text and the line of a check that met it."""
    met = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    lines = [frame for frame in met if Path(frame.filename).parent == HERE]
    where = f" ({Path(lines[-1].filename).name}:{lines[-1].lineno})" if lines else ""
    return f"{type(error).__name__}: {str(error)[:1500]}{where}"


# ---- what torch gives ----


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """In float32, for rows of any type."""
    wide = x.float()
    return wide * torch.rsqrt(wide.pow(2).mean(1, keepdim=True) + 1e-6) * weight.float()


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """In float64."""
    return a.double() @ b.double()


def linear_fp8(a: torch.Tensor, w: torch.Tensor, scale: float) -> torch.Tensor:
    """In float32, whose products of 8-bit floats are exact."""
    return (a.float() @ w.float().T) * scale


def in_threads(work: Callable[[int], None], count: int = 2) -> None:
    """Runs ``work(0)``, ``work(1)``, ... at a time; the first error of one is raised here."""
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
