"""Kernel modules: resolving "file.py:attr" and "pkg.mod:attr" to the object they name."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from tilec.errors import Place, SourceError, TilecError
from tilec.language.frontend.modules.process_ends import ends_refused
from tilec.language.frontend.source_imports import by_text, compiled
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.places import place_of_traceback
from tilec.spelling import nearest


def load_entry(source: str, base: Path, known: dict[Path, ModuleType] | None = None) -> object:
    """The object that ``source`` names: "file.py:attr" relative to ``base``, or an importable "pkg.mod:attr";
    ``attr`` may be dotted. Module-level code runs with ``base`` on the path and a clean argv, each time anew;
    of files in ``known`` the module there is taken, and others are added to it. Raises `SourceError`: no such
    file or name, a syntax error, an exception while importing."""
    where, separator, attribute = source.rpartition(":")
    if not separator or not where or not attribute:
        raise SourceError(f"source {source!r} names no kernel", remedy='write "kernels/file.py:name"')
    with _importing(base, where):
        module = (
            _from_file((base / where).resolve(), {} if known is None else known)
            if where.endswith(".py")
            else importlib.import_module(where)
        )
    entry = _attribute(module, attribute, where)
    return getattr(entry, "jit_impl", entry)  # what tunes a function in process stands for it


def _from_file(path: Path, known: dict[Path, ModuleType]) -> ModuleType:
    if not path.is_file():
        raise SourceError(
            f"kernel source {path} does not exist",
            place=Place(str(path)),
            remedy="sources are relative to the manifest",
        )
    if path not in known:
        known[path] = _execute(path)
    return known[path]


def _execute(path: Path) -> ModuleType:
    name = f"tilec_kernels_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SourceError(
            f"kernel source {path} cannot be loaded",
            place=Place(str(path)),
            remedy="name a file of Python, or an importable module",
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        # compiled here: bytecode that others left may be older than a quick edit
        exec(compiled(path.read_bytes(), str(path)), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def _importing(base: Path, where: str) -> Iterator[None]:
    """The manifest's folder and those of the file on the path, and a clean argv. What is imported leaves no
    bytecode, whose age would be told in whole seconds: a quick edit would be missed."""
    path, argv, writes_none = list(sys.path), sys.argv, sys.dont_write_bytecode
    folders = tuple(dict.fromkeys((base.resolve(), *_folders(base / where))))
    sys.path[:0] = map(str, folders)
    sys.argv = [where]
    sys.dont_write_bytecode = True
    try:
        with _failures_of(where), sessions.importing(), by_text(folders):
            yield
    finally:
        sys.path[:] = path
        sys.argv = argv
        sys.dont_write_bytecode = writes_none


@contextmanager
def _failures_of(where: str) -> Iterator[None]:
    """Failures of an import as source errors."""
    try:
        with ends_refused():
            yield
    except TilecError as error:
        error.place = error.place or place_of_traceback(error.__traceback__)
        raise
    except SyntaxError as error:
        raise SourceError(
            f"kernel source {where} is no valid Python: {error.msg}",
            place=Place(error.filename or where, error.lineno),
            remedy="correct the syntax",
        ) from error
    except ModuleNotFoundError as error:
        raise SourceError(
            f"kernel source {where} imports {error.name}, which is not installed",
            place=place_of_traceback(error.__traceback__) or Place(where),
            remedy="install it, put its file beside the kernel's if it is one of yours, or move the import "
            "into the function that uses it",
        ) from error
    except (Exception, SystemExit) as error:
        raise SourceError(
            f"kernel source {where} raised {type(error).__name__}: {error}",
            place=place_of_traceback(error.__traceback__) or Place(where),
            why="module-level code runs when a build imports the file",
            remedy=_remedy(error, where),
        ) from error


def _remedy(error: BaseException, where: str) -> str:
    """What to do about an error of module-level code. A file that is named as a file is of no package."""
    if "circular import" in str(error):
        return "the files import each other: move what both need to a third one"
    if isinstance(error, ImportError) and "no known parent package" in str(error):
        return f'name it as a module, source = "{where.removesuffix(".py").replace("/", ".")}:..."'
    return "correct it, or move it under `if __name__ == '__main__':`"


def _folders(file: Path) -> tuple[Path, ...]:
    """Where a file of Python finds what it imports: beside it, and beside what it is a link to."""
    return (file.parent.resolve(), file.resolve().parent) if file.suffix == ".py" else ()


def _attribute(module: ModuleType, attribute: str, where: str) -> object:
    found: object = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            names = (name for name in dir(found) if not name.startswith("_"))
            near = nearest(part, [name for name in names if callable(getattr(found, name, None))])
            raise SourceError(
                f"{where} has no {attribute}",
                place=Place(module.__file__ or where, key=attribute),
                remedy=f"did you mean {near}?" if near else "name a kernel of that file",
            )
        found = getattr(found, part)
    return found
