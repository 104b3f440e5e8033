"""Searches over calls: ``f.tune(a, b, block=tl.tune([64, 128]))`` for a jitted function ``f``."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tilec.errors import SourceRuntimeError, SourceTypeError, SourceValueError
from tilec.inprocess.search.tuned import ProfileArgs, Trial
from tilec.inprocess.search.tuning import Search
from tilec.portable.runner.judge import OK

if TYPE_CHECKING:
    from tilec.inprocess.jitted import JITImpl


@dataclass(frozen=True)
class TuneAxis:
    """One axis of a search: the values that an argument may have."""

    values: tuple[Any, ...]


def tune(values: Iterable[Any]) -> TuneAxis:
    """An axis of a search, as an argument of ``f.tune`` or ``f.get_tune_configs``. Raises ValueError for no
    values."""
    made = tuple(values)
    if not made:
        raise SourceValueError("tl.tune() has no values", remedy="give a list of one value or more")
    return TuneAxis(made)


@dataclass(frozen=True)
class CallArgs:
    """The arguments of one call."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class AutoTuneResult:
    """What a search found. ``records``: one per call with its dtypes, sizes and compile-time arguments, and
    ``latency`` (milliseconds, None for a failure), ``_status`` and ``_error``; ``best`` is the record of the
    fastest one, ``best_args`` its arguments."""

    name: str
    num_errors: int
    best_latency: float
    best_args: CallArgs
    best: dict[str, Any]
    records: list[dict[str, Any]]

    def to_pandas(self) -> Any:
        """The records as a DataFrame. Raises ImportError without pandas."""
        return import_module("pandas").DataFrame.from_records(self.records)


def refuse_axes(values: Iterable[Any]) -> None:
    """Raises TypeError where a call gets an axis of a search."""
    if any(isinstance(value, TuneAxis) for value in values):
        raise SourceTypeError("tl.tune(...) is an axis of a search", remedy="call f.tune(...)")


def expanded(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[CallArgs]:
    """The calls of a search: the product of its axes, the last one fastest."""
    axes = [each.values if isinstance(each, TuneAxis) else (each,) for each in (*args, *kwargs.values())]
    count = len(args)
    return [
        CallArgs(chosen[:count], dict(zip(kwargs, chosen[count:], strict=True)))
        for chosen in itertools.product(*axes)
    ]


def as_call(config: Any) -> CallArgs:
    """A call from a `CallArgs`, a dict of keywords or a tuple. Raises ValueError for anything else."""
    if isinstance(config, CallArgs):
        return config
    if isinstance(config, Mapping):
        return CallArgs((), dict(config))
    if isinstance(config, (tuple, list)):
        return CallArgs(tuple(config), {})
    raise SourceValueError(f"config {config!r} is neither a dict nor a tuple", remedy="give arguments")


def search(entry: JITImpl, configs: Iterable[Any]) -> AutoTuneResult:
    """The fastest of several calls of a jitted function. Raises RuntimeError where none runs."""
    calls = [as_call(config) for config in configs]
    found = Search(
        entry.__name__,
        lambda config: entry._request(calls[config["call"]].args, calls[config["call"]].kwargs),
        [{"call": at} for at in range(len(calls))],
        ProfileArgs(),
        _arguments(entry, calls),
    ).explore()
    records = [_record(entry, calls[trial.config["call"]], trial) for trial in found]
    fine = [at for at, trial in enumerate(found) if trial.status == OK]
    if not fine:
        raise SourceRuntimeError(
            f"no call of {entry.__name__} runs",
            place=entry.captured.place,
            why="; ".join(dict.fromkeys(trial.error for trial in found)) or "there are none",
            remedy="correct the arguments",
        )
    best = min(fine, key=lambda at: found[at].latency or 0.0)
    return AutoTuneResult(
        entry.__name__,
        len(found) - len(fine),
        float(found[best].latency or 0.0),
        calls[found[best].config["call"]],
        records[best],
        records,
    )


def _arguments(entry: JITImpl, calls: Sequence[CallArgs]) -> Sequence[Any] | None:
    """What the kernels are run on: the tensors and scalars of the first call, if it has them."""
    if entry.is_lazy_mode() or not calls:
        return None
    return entry.runtime_arguments(calls[0].args, calls[0].kwargs)


def _record(entry: JITImpl, call: CallArgs, trial: Trial) -> dict[str, Any]:
    about = entry.compiled_arguments(call.args, call.kwargs)
    return {**about, "latency": trial.latency, "_status": trial.status, "_error": trial.error}
