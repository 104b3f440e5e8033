"""Keys of kernels in the cache, from what is there before anything is compiled: sources and arguments.

A key says the same on every machine, so that a cache can be carried; it needs no TVM. What a kernel's
function names (closures, globals, helpers, modules of the author) counts by its value or by its text. A file
that was written while this process ran has no text that counts: what was loaded of it may be another one."""

from __future__ import annotations

import inspect
import linecache
import os
import sys
import sysconfig
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import tilec
from tilec.cache import digest
from tilec.language.frontend.rewriting.capture import Captured
from tilec.language.values.value import Deferred
from tilec.started import is_as_loaded

#: Packages whose versions change no kernel.
_BY_NAME = frozenset(("tilec", "torch", "numpy", "ml_dtypes", "jax", "tvm", "tvm_ffi", "triton", "pytest"))
_STDLIB = os.path.join(sysconfig.get_path("stdlib"), "")
_PLAIN = (int, float, complex, str, bytes, bool, type(None), range)


class _Unkeyable(Exception):
    """A value whose meaning cannot be written down."""


@lru_cache(maxsize=1)
def own_digest() -> str:
    """One hash over the sources of tilec and of its C runtime: the same on every machine that has them."""
    from tilec.package.library.runtime import runtime_bytes

    folder = Path(tilec.__file__).parent
    parts: list[str | bytes] = [runtime_bytes()]
    for path in sorted(folder.rglob("*.py")):
        parts += [path.relative_to(folder).as_posix(), path.read_bytes()]
    return digest(*parts)


def kernel_key(
    entry: Captured | FunctionType, arguments: Mapping[str, Any], options: Mapping[str, Any]
) -> str | None:
    """The key of a function with these compile-time arguments; None where something that it names has no
    text, so that only the tile IR can tell kernels apart."""
    try:
        described = _Describer()
        return digest(
            own_digest(),
            described.captured(entry) if isinstance(entry, Captured) else described.function(entry),
            described.value(dict(arguments)),
            described.value(dict(options)),
        )
    except _Unkeyable:
        return None


class _Describer:
    """Writes values down; a function counts once."""

    def __init__(self) -> None:
        self._seen: set[FunctionType | ModuleType] = set()

    def value(self, value: Any) -> str:
        """The text of a value."""
        if isinstance(value, str):  # a dtype of the language is its name
            return f"str {str(value)!r}"
        if isinstance(value, _PLAIN):
            return f"{type(value).__name__} {value!r}"
        if isinstance(value, (list, tuple)):
            return f"{type(value).__name__} [{', '.join(map(self.value, value))}]"
        if isinstance(value, (set, frozenset)):
            return f"set {sorted(map(self.value, value))}"
        if isinstance(value, Mapping):
            return f"{{{', '.join(f'{self.value(key)}: {self.value(each)}' for key, each in value.items())}}}"
        if isinstance(value, ModuleType):
            return self._module(value)
        return self._object(value)

    def function(self, function: FunctionType) -> str:
        """The text of a function: the file that holds it, and what it names beyond that."""
        name, code = f"{function.__module__}.{function.__qualname__}", function.__code__
        installed = _is_installed(sys.modules.get(function.__module__))
        if installed and "<" not in name:
            return name
        if function in self._seen:
            return f"again {function.__qualname__}"
        self._seen.add(function)
        if installed:  # one of several that a function has made (`T.exp`, `T.sin`), or a lambda
            return digest(name, str(code.co_firstlineno), repr(self._named(_held(function))))
        named = {each: function.__globals__[each] for each in _globals(code) if each in function.__globals__}
        inside = self._named(_held(function) | named)
        return digest(function.__qualname__, str(code.co_firstlineno), _text(code), repr(inside))

    def _named(self, values: Mapping[str, Any]) -> dict[str, str]:
        return {name: self.value(value) for name, value in sorted(values.items())}

    def captured(self, captured: Captured) -> str:
        """The text of a function of the language. Its annotations count by what they name and by what they
        are: the first for those that nothing has evaluated yet, the second for those that were."""
        again = captured.function in self._seen
        text = self.function(captured.function)
        if again:
            return text
        named = {name: self.value(value) for name, value in sorted(captured.named_values().items())}
        spelled = captured.function.__annotations__
        return digest(text, repr(named), repr({name: self.value(spelled[name]) for name in sorted(spelled)}))

    def _object(self, value: Any) -> str:
        if isinstance(value, FunctionType):
            return self.function(value)
        if isinstance(value, Deferred):
            return f"deferred {self.value(value.call)}"
        captured = getattr(value, "captured", None)  # prim_funcs, macros and jitted functions
        if isinstance(captured, Captured):
            return f"{type(value).__name__} {self.captured(captured)}"
        module = type(value).__module__.partition(".")[0]
        if module in ("torch", "numpy", "ml_dtypes") and "dtype" in type(value).__name__.lower():
            return str(value)
        if isinstance(value, type) or inspect.isbuiltin(value):
            return f"{value.__module__}.{value.__qualname__}"
        if module == "tilec":
            return self._own(value)
        raise _Unkeyable

    def _own(self, value: Any) -> str:
        """An object of tilec by its class and its fields; functions of the language have no others."""
        fields = getattr(value, "__dict__", None)
        if fields is None:
            raise _Unkeyable
        return f"{type(value).__module__}.{type(value).__qualname__} {self.value(fields)}"

    def _module(self, module: ModuleType) -> str:
        """An author's module by its text and that of the modules that it names; an installed one by its
        name."""
        if _is_installed(module) or module in self._seen:
            return f"module {module.__name__}"
        self._seen.add(module)
        file = str(module.__file__)
        try:
            text = Path(file).read_bytes()
        except OSError:
            raise _Unkeyable from None
        if not is_as_loaded(file):
            raise _Unkeyable
        return digest(module.__name__, text, *map(self._module, _named_modules(module)))


def _held(function: FunctionType) -> dict[str, Any]:
    """What a function has of its own beside its text: the values that it closes over, and its defaults."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    held = {name: _content(cell) for name, cell in cells}
    held |= {f"default {index}": value for index, value in enumerate(function.__defaults__ or ())}
    return held | {f"default {name}": value for name, value in (function.__kwdefaults__ or {}).items()}


def _named_modules(module: ModuleType) -> list[ModuleType]:
    """The modules that a module imports, and those that what it imports comes from, by name."""
    values = list(vars(module).values())
    homes = [sys.modules.get(str(getattr(value, "__module__", ""))) for value in values]
    found = {each.__name__: each for each in (*values, *homes) if isinstance(each, ModuleType)}
    return [found[name] for name in sorted(found) if not _is_installed(found[name])]


def _is_installed(module: ModuleType | None) -> bool:
    """Whether a module is of Python, of tilec or of a package in `_BY_NAME`: what it does follows from its
    name. Everything else counts by its text, wherever it lies."""
    if module is None or module.__name__ == "__main__":
        return False
    if module.__name__.partition(".")[0] in _BY_NAME:
        return True
    file = getattr(module, "__file__", None)
    return file is None or (file.startswith(_STDLIB) and "-packages" not in file)


def _globals(code: CodeType) -> set[str]:
    """The global names of a function and of the functions inside it."""
    inner = [const for const in code.co_consts if isinstance(const, CodeType)]
    return set(code.co_names).union(*(map(_globals, inner)))


def _text(code: CodeType) -> str:
    lines = linecache.getlines(code.co_filename)
    if not lines or not is_as_loaded(code.co_filename):
        raise _Unkeyable
    return "".join(lines)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return "empty"
