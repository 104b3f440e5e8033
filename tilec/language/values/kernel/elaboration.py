"""What one elaboration was asked for and has found so far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tilec.errors import Remark, SourceError, SourceValueError
from tilec.ir.guards import Guard, largest_dim
from tilec.ir.num_sms import NUM_SMS, REACH
from tilec.language.values.kernel.places import source_error
from tilec.language.values.value import Dim, Value
from tilec.spelling import nearest

if TYPE_CHECKING:
    from tvm.ir import Var
    from tvm.sym import Analyzer

    from tilec.language.values.kernel.builder import Builder

_INT32_MAX = 2**31 - 1


class Session:
    """The elaboration of one kernel.

    ``dims`` are the guards by name; with ``open_dims``, names that it does not list are runtime values, and
    ``opened``.
    ``used`` are the dimensions that the kernel has asked for so far, as `Dim` (pinned) or `Value` (runtime);
    ``builder`` is set while a kernel body runs; ``addresses`` are the pointer parameters that are no tensor
    (`tilec.language.tiles.parameters.pointers`), ``constants`` the names of T.const, ``unnamed`` the nameless
    dims; ``pass_configs`` and ``compile_flags`` are what the kernel's code states; ``is_eager``: T.const is
    allowed; ``is_discovery``: the body ends at its first T.Kernel; ``learned``: constants whose numbers its
    tensors have shown by then; ``remarks`` are what the author is to be told."""

    def __init__(self, name: str, dims: Mapping[str, Guard], *, open_dims: bool = False) -> None:
        from tvm.sym import Analyzer

        if NUM_SMS in dims:
            raise SourceError(
                f"dimension {NUM_SMS} of kernel {name} has the name of the number of multiprocessors",
                why="the library fills that one in when it launches",
                remedy="remove it from dims, or give the dimension another name",
            )
        self.name = name
        self.dims = dict(dims)
        self.open_dims = open_dims
        self.opened: set[str] = set()
        self.used: dict[str, Any] = {}
        self.analyzer: Analyzer = Analyzer()
        self.builder: Builder | None = None
        self.addresses: set[str] = set()
        self.constants: list[str] = []
        self.unnamed: list[Any] = []
        self.pass_configs: dict[str, Any] = {}
        self.compile_flags: list[str] = []
        self.imported = ""
        self.is_discovery = False
        self.learned: set[str] = set()
        self.is_eager = False
        self.remarks: list[Remark] = []

    def num_sms(self) -> Any:
        """The dim that the library fills in at launch (`tilec.ir.num_sms`)."""
        self.dims.setdefault(NUM_SMS, REACH)
        return self.dimension(NUM_SMS)

    def dimension(self, name: str, dtype: str = "int32") -> Any:
        """The dimension called ``name``. Raises `SourceError` if dims does not list it."""
        if name not in self.used:
            self.used[name] = self._make(name, dtype)
        return self.used[name]

    def _make(self, name: str, dtype: str) -> Any:
        from tvm import tirx

        guard = self.dims.get(name)
        if guard is None and self.open_dims:
            guard = self.dims[name] = Guard()
            self.opened.add(name)
        if guard is None:
            raise self._missing(name)
        guard = self.dims[name] = self._within_reach(name, guard, 32 if dtype == "int32" else 64)
        if guard.eq is not None:
            return Dim(guard.eq, name)
        var = tirx.Var(name, dtype)
        self.learn(var, guard)
        return Value(var, text=name)

    def _within_reach(self, name: str, guard: Guard, bits: int) -> Guard:
        """The guard without a bound that lies beyond what a dim of so many bits reaches anyway: what it is
        computed with, such as the bound and 1, may not fit."""
        limit = largest_dim(bits)
        if guard.least > limit:
            raise self._beyond_reach(name, guard, bits, limit)
        return guard.up_to(limit)

    def _beyond_reach(self, name: str, guard: Guard, bits: int, limit: int) -> SourceValueError:
        wider = f'declare it as T.dynamic("{name}", "int64") in the kernel, or ' if bits == 32 else ""
        return SourceValueError(
            f"{name} = {guard} can never be served: kernel {self.name} computes {name} in {bits} bits",
            why=f"such a dimension may be at most {limit}",
            remedy=f"{wider}choose smaller values",
        )

    def _missing(self, name: str) -> SourceError:
        near = nearest(name, [key for key in self.dims if key not in self.used])
        hint = f"; did the manifest mean it by {near!r}?" if near else ""
        return source_error(
            SourceError,
            f"dimension {name} of kernel {self.name} has no entry in dims{hint}",
            construct=name,
            remedy=f'add {name} = "dynamic" (or an integer, or a guard) to dims',
        )

    def learn(self, var: Var, guard: Guard) -> None:
        """Tell the analyzer the guard of a runtime dimension; dimensions are never negative."""
        from tvm.sym import ConstIntBound, ModularSet

        low = 0 if guard.min is None else guard.min
        high = _INT32_MAX if guard.max is None else guard.max
        self.analyzer.update(var, ConstIntBound(low, high), True)
        if guard.div != 1:
            self.analyzer.update(var, ModularSet(guard.div, 0), True)
