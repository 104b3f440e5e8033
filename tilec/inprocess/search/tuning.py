"""The search among configs in process, on what `tilec tune` searches with: compile processes that may die,
the order of the cost model, its outcomes.

Every config is compiled, checked and measured for as long as the caller says; `tilec tune` narrows down.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tilec.errors import SourceRuntimeError, SourceValueError, TilecError
from tilec.families import family_of
from tilec.inprocess.compilation import store
from tilec.inprocess.compilation.compiling import compile_each
from tilec.inprocess.compilation.request import Request, compile_request
from tilec.inprocess.kernel import JITKernel
from tilec.inprocess.measuring.bench import do_bench
from tilec.inprocess.search import tuned
from tilec.inprocess.search.time_limits import TimeoutException, within
from tilec.inprocess.search.trial_inputs import TrialInputs, get_autotune_inputs
from tilec.inprocess.search.tuned import AutotuneResult, ProfileArgs, Trial, plain, with_kernel
from tilec.portable.runner.judge import OK, REFUSED, TIMEOUT, UNCOMPILED, WRONG
from tilec.settings import read_settings

_LOG = logging.getLogger("tilec")


@dataclass
class Search:
    """One search. ``make(config)`` is the request of a config; ``arguments`` are the call's own, where there
    is one, as inputs; ``key`` identifies the search in the cache, None where it cannot be kept. ``trials``:
    what became of the configs, in their order."""

    name: str
    make: Callable[[Mapping[str, Any]], Request]
    configs: Sequence[Mapping[str, Any]]
    profile: ProfileArgs
    arguments: Sequence[Any] | None = None
    key: str | None = None
    _found: dict[int, Trial] = field(default_factory=dict, init=False)

    @property
    def trials(self) -> list[Trial]:
        """What became of the configs that were tried, in their order."""
        return [self._found[at] for at in sorted(self._found)]

    def run(self) -> AutotuneResult:
        """The best config. Raises RuntimeError where none passes."""
        known = self._known()
        if known is not None:
            return known
        if not self.configs:
            raise SourceValueError(
                f"there are no configurations of {self.name} to compare",
                remedy="give configs a dict of lists, a list of dicts, or a function that returns one",
            )
        best = self._best(self.explore())
        if best is None:
            raise SourceRuntimeError(
                f"no configuration of {self.name} passed",
                why=f"{len(self.configs)} were tried; the log of tilec has what each one failed on",
                remedy="correct the configs, the reference or the tolerances",
            )
        best.ref_latency = self._reference_latency(best)
        if self.key is not None and self._persists():
            tuned.keep(self.key, best)
        return with_kernel(best)

    def explore(self) -> list[Trial]:
        """Tries every config. Raises ValueError where nothing can be supplied as inputs."""
        self._found.clear()
        self._inputs = TrialInputs(self.profile, self.arguments)
        requests = self._requests()
        order = _ordered(requests)
        ready: list[tuple[int, JITKernel]] = []

        def done(place: int, made: JITKernel | TilecError) -> None:
            at = order[place]
            if isinstance(made, TilecError):
                self._failed(at, UNCOMPILED, made)
            elif family_of(made.target).on_host:  # compile processes would be in the way of what is measured
                ready.append((at, made))
            else:
                self._try(at, made)

        compile_each([requests[at] for at in order], read_settings().tuning_jobs, done)
        for at, kernel in sorted(ready, key=lambda pair: order.index(pair[0])):
            self._try(at, kernel)
        return self.trials

    def _requests(self) -> dict[int, Request]:
        """By the config's place; what makes none is a trial that failed."""
        made = {}
        for at, config in enumerate(self.configs):
            try:
                made[at] = self.make(config)
            except Exception as error:  # of the author's code
                self._failed(at, UNCOMPILED, error)
        return made

    # ---- one config ----

    def _try(self, at: int, kernel: JITKernel) -> None:
        inputs = self._inputs.of(kernel)  # that nothing can be supplied is no fault of a config
        with self._faults(at):
            latency = within(self.profile.timeout, lambda: self._measured(kernel, inputs))
            self._found[at] = Trial(self.configs[at], OK, latency, kernel=kernel)
            _LOG.info("%s: config %s takes %.4g ms", self.name, self.configs[at], latency)

    @contextlib.contextmanager
    def _faults(self, at: int) -> Iterator[None]:
        try:
            yield
        except TimeoutException as error:
            self._failed(at, TIMEOUT, error)
        except AssertionError as error:
            self._failed(at, WRONG, error)
        except Exception as error:
            self._failed(at, REFUSED, error)

    def _failed(self, at: int, status: str, error: BaseException) -> None:
        _LOG.warning("%s: config %s is skipped: %s", self.name, self.configs[at], error)
        self._found[at] = Trial(self.configs[at], status, error=str(error))

    def _measured(self, kernel: JITKernel, inputs: Sequence[Any]) -> float:
        """Milliseconds, if the outputs are right."""
        self._check(kernel, inputs)
        return self._time(lambda: kernel(*inputs), kernel, self._hopeless())

    def _check(self, kernel: JITKernel, inputs: Sequence[Any]) -> None:
        """Raises AssertionError where outputs are not the reference's. A kernel without outputs of its own
        cannot be compared."""
        profile = self.profile
        if profile.ref_prog is None or profile.skip_check or not kernel.out_idx:
            return
        profiler = kernel.get_profiler(profile.supply_type)
        if profile.manual_check_prog is not None:
            profiler.manual_assert_close(profile.ref_prog, inputs, profile.manual_check_prog)
            return
        profiler.assert_allclose(
            profile.ref_prog, inputs, profile.atol, profile.rtol, profile.max_mismatched_ratio
        )

    def _time(self, call: Callable[[], Any], kernel: JITKernel, hopeless: float | None = None) -> float:
        return float(
            do_bench(  # type: ignore[arg-type]
                call,
                _n_warmup=self.profile.warmup,
                _n_repeat=self.profile.rep,
                backend=self.profile.backend,
                device=family_of(kernel.target).device,
                early_stop_baseline=hopeless,
            )
        )

    def _hopeless(self) -> float | None:
        """Half of the latency from which on a config is not measured to the end: `do_bench` doubles it."""
        best = self._best(self.trials) if self.profile.early_stop else None
        return None if best is None else best.latency * self.profile.early_stop_factor / 2

    # ---- all of them ----

    @staticmethod
    def _best(trials: Sequence[Trial]) -> AutotuneResult | None:
        """The fastest of the trials; of equal ones the first."""
        right = [trial for trial in trials if trial.latency is not None]
        if not right:
            return None
        best = min(right, key=lambda trial: trial.latency or 0.0)
        assert best.kernel is not None
        return AutotuneResult(
            best.latency or 0.0, dict(best.config), func=best.kernel.prim_func, kernel=best.kernel
        )

    def _reference_latency(self, best: AutotuneResult) -> float | None:
        reference, kernel = self.profile.ref_prog, best.kernel
        if reference is None or kernel is None:
            return None
        inputs = self._inputs.of(kernel)
        return self._time(lambda: reference(*inputs), kernel)

    def _known(self) -> AutotuneResult | None:
        """What an earlier search found, with its kernel."""
        found = tuned.read(self.key) if self.key is not None and self._persists() else None
        wanted = [config for config in self.configs if found is not None and plain(config) == found.config]
        if found is None or not wanted:
            return None
        kernel = compile_request(self.make(wanted[0]))
        return with_kernel(replace(found, config=dict(wanted[0]), kernel=kernel, func=kernel.prim_func))

    def _persists(self) -> bool:
        return self.profile.persists and get_autotune_inputs() is None


def _ordered(requests: Mapping[int, Request]) -> list[int]:
    """Kernels of the cache first, then by what the cost model promises; a config that no kernel can be made
    of comes last, and says so when it is compiled."""
    return sorted(requests, key=lambda at: _promise(requests[at]))


def _promise(request: Request) -> float:
    if request.early_key is not None and store.is_cache_enabled() and store.has(request.early_key):
        return 0.0
    from tilec.build.schedules.sketch import promise

    try:
        return promise(request.made.kernel, request.options.target)
    except TilecError:
        return float("inf")
