"""From a variant of a manifest to verified tile IR; what goes wrong is said with the variant's name."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, NamedTuple

from tilec.build.elaborated.idle_keys import remarks_on_keys
from tilec.build.elaborated.value_kinds import blaming_values, kinds_of
from tilec.build.reuse.loaded_files import author_modules_afresh, loaded_files
from tilec.errors import CompileError, ManifestError, Place, Remark, TilecError
from tilec.manifest import Variant

if TYPE_CHECKING:
    from pathlib import Path

    from tilec.ir.nodes import Kernel
    from tilec.language.frontend.elaborate import Traced


class Elaborated(NamedTuple):
    """A verified kernel, the Python files that it was made from and their digests (`loaded_files`), what
    its author is to be told, and the kinds of its factory's parameters (`kinds_of`)."""

    kernel: Kernel
    files: Mapping[Path, str]
    remarks: tuple[Remark, ...]
    kinds: Mapping[str, str]


def elaborate_variant(variant: Variant) -> Elaborated:
    """The kernel of a variant. What its file prints goes to stderr, as stdout is the command's.

    Raises SourceError for what the author can mend, and other errors of the tree for defects.
    """
    from tilec.language.frontend.elaborate import check_parameters, defaults, load_entry
    from tilec.language.frontend.review.verified import verify_source

    began = time.time_ns()
    with naming(variant), author_modules_afresh(variant.source, variant.base), redirect_stdout(sys.stderr):
        entry = load_entry(variant.source, variant.base)
        check_parameters(entry, variant.value_places, variant.kernel)
        with blaming_values(entry, variant):
            found = _traced(entry, variant)
        verify_source(found.kernel)
        check_outputs(variant, found.kernel)
        remarks = (*found.remarks, *remarks_on_keys(found.kernel, variant))
        files = loaded_files(variant.source, variant.base, began)
        return Elaborated(found.kernel, files, remarks, kinds_of(defaults(entry)))


def _traced(entry: object, variant: Variant) -> Traced:
    from tilec.language.frontend.elaborate import trace

    return trace(entry, name=variant.kernel, dims=variant.dims, args=variant.args, config=variant.config)


def check_outputs(variant: Variant, kernel: Kernel) -> None:
    """Raises ManifestError where the manifest names other outputs than the kernel writes."""
    from tilec.ir.nodes import TensorParam

    tensors = [param for param in kernel.params if isinstance(param, TensorParam)]
    written = [tensor.name for tensor in tensors if tensor.access != "in"]
    if variant.outputs is None or set(variant.outputs) == set(written):
        return
    listed = ", ".join(variant.outputs) or "nothing"
    raise ManifestError(
        f"outputs lists {listed}, {variant.kernel} writes {', '.join(written) or 'nothing'}",
        place=variant.place,
        remedy="list what the kernel writes, or leave outputs out",
    )


@contextmanager
def naming(variant: Variant) -> Iterator[None]:
    """Errors that leave the block say which variant they are about; foreign ones become CompileError."""
    try:
        yield
    except TilecError as error:
        error.place = _in_manifest(error.place, variant)
        about = (error.why, f"while compiling {variant.title}", _config_text(variant))
        error.why = "; ".join(part for part in about if part)
        raise
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise CompileError(
            f"compiling {variant.title} failed: {type(error).__name__}: {error}",
            place=variant.place,
            why=f"an error that tilec did not foresee, at {last.filename}:{last.lineno}",
            remedy="this is a defect of tilec: report it with the kernel",
        ) from error


def _in_manifest(place: Place | None, variant: Variant) -> Place:
    """``place``, or where a key stands that is all that an error knows of its place."""
    if place is not None and place.file is None:
        place = variant.value_places.get(place.key or "")
    return place or variant.place


def _config_text(variant: Variant) -> str:
    """Where the values that reached the kernel are from: `with the config of engine.toml:9 and 14`."""
    lines = [str(place.line) for place in variant.config_places if place.line is not None]
    return f"with the config of {variant.config_places[0].file}:{' and '.join(lines)}" if lines else ""
