"""From the entry that a manifest names to a tile IR kernel, for one choice of dims, args and config."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tilec.errors import Place, Remark, SourceError, TilecError
from tilec.ir.options import options_of
from tilec.ir.schedule import KEYS
from tilec.language.frontend.compile_options import merged_configs, merged_flags
from tilec.language.frontend.jitted import JitFunction
from tilec.language.frontend.modules.author_errors import author_error, is_misuse, misuse_error
from tilec.language.frontend.modules.entries import load_entry
from tilec.language.frontend.modules.process_ends import ends_refused
from tilec.language.frontend.modules.torch_device import without_a_device
from tilec.language.frontend.programs import PrimFunc
from tilec.language.frontend.schedules import debugging, schedule_of, scheduled
from tilec.language.threads.debugging import without_debugging
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.elaboration import Session
from tilec.language.values.kernel.places import call_of_traceback, place_of_traceback
from tilec.spelling import nearest

if TYPE_CHECKING:
    from tilec.ir.guards import Guard
    from tilec.ir.nodes import Kernel

__all__ = [
    "EntryParameters",
    "defaults",
    "describe",
    "elaborate",
    "load_entry",
    "parameters",
    "tuning_configs",
]

#: Config keys that options of the compiler use; they reach no factory.
RESERVED = ("pass_configs", "compile_flags", "debug")

_COLLECTING = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True)
class EntryParameters:
    """What an entry takes. ``form``: "prim_func", "factory" or "eager". ``required`` have no default. Dims
    may list names beyond these (T.const and T.dynamic of the body, known only when it runs)."""

    form: str
    required: tuple[str, ...]
    optional: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return self.required + self.optional


def describe(entry: object) -> EntryParameters:
    """The compile-time parameters of an entry. Raises `SourceError` for an object that is no kernel."""
    if isinstance(entry, PrimFunc):
        return EntryParameters("prim_func", (), ())
    if isinstance(entry, JitFunction) and not entry.is_lazy_mode():
        names = (*entry.compile_time_parameters(), *entry.open_dtypes())
        return EntryParameters("eager", *_split(names, entry.captured.defaults()))
    function = _factory(entry)
    named = [p for p in inspect.signature(function).parameters.values() if p.kind not in _COLLECTING]
    known = {p.name: p.default for p in named if p.default is not inspect.Parameter.empty}
    return EntryParameters("factory", *_split(tuple(p.name for p in named), known))


def defaults(entry: object) -> dict[str, Any]:
    """The values of the compile-time parameters that nobody has to bind."""
    return _defaults(entry, describe(entry))


def parameters(entry: object) -> tuple[str, ...]:
    """The names that dims, args and config may bind: required ones first."""
    return describe(entry).names


def elaborate(
    entry: object,
    *,
    name: str,
    dims: Mapping[str, Guard],
    args: Mapping[str, object],
    config: Mapping[str, object],
    out_idx: object = None,
    open_dims: bool = False,
) -> Kernel:
    """The tile IR of ``entry`` called ``name``.

    ``dims``: a guard per symbolic dimension; pinned ones reach the code as integers that remember their name,
    others as runtime values. ``args`` and ``config`` bind the other parameters; schedule keys of ``config``
    become the schedule of the launches (`tilec.ir.schedule`), ``debug`` keeps prints and assertions
    (default: as ``open_dims``). ``out_idx`` as `tilec.jit` takes it, which is asked where it is None;
    ``open_dims``: dimensions that ``dims`` leaves out are runtime values. Raises `SourceError` (or the
    subclass that derives from the builtin exception of the author's code) with file and line."""
    found = trace(entry, name=name, dims=dims, args=args, config=config, out_idx=out_idx, open_dims=open_dims)
    found.warn()
    return found.kernel


@dataclass(frozen=True)
class Traced:
    """A kernel, the ``parameters`` of the function whose body it is, and the options of the compiler: what
    that code states under what the decorator says. ``own_flags`` are those of the code alone; ``remarks`` are
    what the author is to be told."""

    kernel: Kernel
    parameters: tuple[str, ...]
    pass_configs: dict[str, Any]
    compile_flags: list[str]
    own_flags: tuple[str, ...] = ()
    remarks: tuple[Remark, ...] = ()

    def warn(self) -> None:
        """The remarks as Python's warnings, at the author's lines."""
        for remark in self.remarks:
            file, line = remark.place.file or self.kernel.name, remark.place.line or 0
            said = f"{remark.what}; {remark.remedy}" if remark.remedy else remark.what
            warnings.warn_explicit(said, UserWarning, file, line)


def trace(
    entry: object,
    *,
    name: str,
    dims: Mapping[str, Guard],
    args: Mapping[str, object],
    config: Mapping[str, object],
    out_idx: object = None,
    open_dims: bool = False,
) -> Traced:
    """As `elaborate`, with what else is known of the kernel."""
    from tilec.ir.analysis.aliases import agreed
    from tilec.ir.analysis.threads.groups import with_groups
    from tilec.language.frontend.review.remarks import remarks_on

    described = describe(entry)
    config = config if open_dims else _with_first_config(entry, dims, args, config)
    schedule = schedule_of(config, described.names)
    own = {key for key in RESERVED if key not in described.names}
    tunable = {key: value for key, value in config.items() if key not in {*own, *schedule}}
    given = _given(entry, described, name, dims, args, tunable)
    session = Session(name, dims, open_dims=open_dims)
    device = nullcontext() if open_dims else without_a_device()
    with sessions.elaborating(session), _authors_errors(name), device:
        values = {key: session.dimension(key) if key in dims else given[key] for key in given}
        kernel, names = _trace(entry, session, values, out_idx)
    configs, flags = _asked_options(entry, session, {key: config.get(key) for key in own})
    kernel = agreed(with_groups(kernel))
    remarks = (*session.remarks, *remarks_on(kernel, configs))
    debug = debugging(config) if "debug" in own else None
    if not (open_dims if debug is None else debug):
        kernel = without_debugging(kernel)
    kernel = scheduled(kernel, schedule)
    options = options_of(configs, flags, session.imported)
    kernel = replace(kernel, doc=kernel.doc or _first_line(entry), options=options)
    return Traced(kernel, names, configs, flags, tuple(session.compile_flags), remarks)


def _asked_options(
    entry: object, session: Session, given: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """The pass configs and the compiler's flags: what the kernel's code states, under what its decorator
    says, under what the config has."""
    of_jit = entry.options if isinstance(entry, JitFunction) else {}
    configs = merged_configs(session.pass_configs, of_jit.get("pass_configs"))
    flags = merged_flags(session.compile_flags, of_jit.get("compile_flags"))
    with _of_key("pass_configs"):
        configs = merged_configs(configs, given.get("pass_configs"))
    with _of_key("compile_flags"):
        return configs, merged_flags(flags, given.get("compile_flags"))


def _with_first_config(
    entry: object, dims: Mapping[str, Guard], args: Mapping[str, object], config: Mapping[str, object]
) -> Mapping[str, object]:
    """``config``, or where it chooses nothing that `tilec.autotune` would, the first of the author's."""
    first = next(iter(tuning_configs(entry, dims, args)), {})
    if any(key in config for key in first):
        return config
    return {**{key: value for key, value in first.items() if key not in dims and key not in args}, **config}


def tuning_configs(
    entry: object, dims: Mapping[str, Guard], args: Mapping[str, object]
) -> list[dict[str, Any]]:
    """The configs that `tilec.autotune` has for an entry; none for one without it. A function of the author
    gets pinned dims as integers, other dims as the texts of their guards, and ``args``."""
    configs = entry.tuning_configs if isinstance(entry, JitFunction) else None
    if callable(configs):
        values = {name: str(guard) if guard.eq is None else guard.eq for name, guard in dims.items()}
        wanted = inspect.signature(configs).parameters.values()
        takes_all = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in wanted)
        names = {one.name for one in wanted}
        given = {key: value for key, value in {**values, **args}.items() if takes_all or key in names}
        if any(
            one.default is one.empty and one.name not in given and one.kind not in _COLLECTING
            for one in wanted
        ):
            return []  # what is missing is said of the kernel
        with _authors_errors(entry.__name__):  # type: ignore[attr-defined]
            configs = configs(**given)
    return [dict(config) for config in configs or ()]


def _first_line(entry: object) -> str:
    """The first line of an entry's docstring."""
    return (getattr(entry, "__doc__", None) or "").strip().partition("\n")[0]


def _trace(
    entry: object, session: Session, values: dict[str, Any], out_idx: object
) -> tuple[Kernel, tuple[str, ...]]:
    if isinstance(entry, PrimFunc):
        return entry.trace(session, out_idx), tuple(entry.captured.parameters)
    if isinstance(entry, JitFunction) and not entry.is_lazy_mode():
        return entry.trace(session, values), tuple(entry.captured.parameters)
    function = _factory(entry)
    made = function(**values)
    if not isinstance(made, PrimFunc):
        raise SourceError(
            f"{function.__name__} returned {type(made).__name__}, not a prim_func",
            place=_place(entry),
            remedy=f"put @T.prim_func in front of def {made.__name__}"
            if inspect.isfunction(made)
            else "return the inner @T.prim_func",
        )
    if out_idx is None and isinstance(entry, JitFunction):
        out_idx = entry.out_idx
    return made.trace(session, out_idx), tuple(made.captured.parameters)


def _factory(entry: object) -> Callable[..., Any]:
    function = entry.func if isinstance(entry, JitFunction) else entry
    if inspect.isfunction(function):
        return function
    raise SourceError(
        f"{entry!r} is no kernel",
        place=_place(entry),
        remedy="name a @T.prim_func, a @tilec.jit function or a factory that returns a prim_func",
    )


def _place(entry: object) -> Place | None:
    if isinstance(entry, (JitFunction, PrimFunc)):
        return entry.captured.place
    code = getattr(entry, "__code__", None)
    return None if code is None else Place(code.co_filename, code.co_firstlineno, code.co_name)


def _split(names: tuple[str, ...], defaults: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return tuple(n for n in names if n not in defaults), tuple(n for n in names if n in defaults)


def _given(
    entry: object,
    described: EntryParameters,
    name: str,
    dims: Mapping[str, Any],
    args: Mapping[str, Any],
    config: Mapping[str, Any],
) -> dict[str, Any]:
    """The values of the parameters: dims (by their guard), args, config, defaults; each from one place."""
    known = described.names
    for key in {**args, **config}:
        _check_key(entry, key, known, name)
    values: dict[str, Any] = {}
    for source in ({key: guard for key, guard in dims.items() if key in known}, args, config):
        for key, value in source.items():
            if key in values:
                raise SourceError(
                    f"parameter {key} of kernel {name} is given twice",
                    place=_place(entry),
                    remedy="give it in dims, in args or in config, not in two of them",
                )
            values[key] = value
    missing = [key for key in described.required if key not in values]
    if missing:
        near = nearest(missing[0], [key for key in dims if key not in known])
        raise SourceError(
            f"kernel {name} needs parameter {missing[0]}",
            place=_place(entry),
            why="it has no default" + (f", and dims gives {near}, which it does not have" if near else ""),
            remedy=(f"write {missing[0]} for {near}, or " if near else "")
            + f"give {missing[0]} in dims, args or config",
        )
    return {**_defaults(entry, described), **values}


def _defaults(entry: object, described: EntryParameters) -> dict[str, Any]:
    if described.form == "prim_func":
        return {}
    signature = inspect.signature(_factory(entry)).parameters
    return {key: signature[key].default for key in described.optional}


def check_parameters(entry: object, keys: Iterable[str], name: str) -> None:
    """Raises SourceError, whose place is the key, where one is neither a parameter of the entry of kernel
    ``name`` nor for the schedule or the compiler."""
    known = parameters(entry)
    for key in keys:
        if key not in KEYS and key not in RESERVED:
            _check_key(entry, key, known, name)


def _check_key(entry: object, key: str, known: tuple[str, ...], name: str) -> None:
    if key in known:
        return
    near = nearest(key, (*known, *KEYS))
    raise SourceError(
        f"kernel {name} has no parameter {key}",
        place=Place(key=key),
        why=f"{_place(entry)} takes {', '.join(known) or 'none'}, and {key} is no schedule key",
        remedy=f"did you mean {near}?" if near else "remove it",
    )


@contextmanager
def _of_key(key: str) -> Iterator[None]:
    """Errors are those of a value of the config."""
    try:
        yield
    except SourceError as error:
        error.place = Place(key=key)
        raise


@contextmanager
def _authors_errors(name: str) -> Iterator[None]:
    """Errors of the author's code carry its file and line, and stay catchable under their builtin class."""
    try:
        with ends_refused():
            yield
    except TilecError as error:
        if error.place is None:
            error.place = place_of_traceback(error.__traceback__)
        raise
    except (Exception, SystemExit) as error:
        place, called = place_of_traceback(error.__traceback__), call_of_traceback(error.__traceback__)
        if called is not None and is_misuse(error, called):
            raise misuse_error(error, name, place, called) from error
        raise author_error(error, name, place) from error
