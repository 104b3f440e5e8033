"""A folder for the kernel hub of Hugging Face: what its `kernels` package loads, and the card for people.

``hub/README.md`` is the card, ``hub/build/torch-universal`` the one build for every torch and Python: the
library of each host, the loader, and operators of torch under a namespace that no other build has."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tilec.families import host_family
from tilec.package.bindings.python import FOR_TORCH
from tilec.package.family import families_in
from tilec.package.hub.card import card
from tilec.package.hub.layers import layer_text, layers_of
from tilec.package.hub.names import by_name, function_name, hub_name, hub_version, identity
from tilec.package.install import scratch_folder
from tilec.package.model import PackageSpec
from tilec.package.places import places
from tilec.package.templates import render
from tilec.package.text.escape import json_text, python_doc, python_string

if TYPE_CHECKING:
    from tilec.package.write import BuildReport

#: What `kernels` calls a build for all versions of torch, for all backends.
VARIANT = "build/torch-universal"
#: What kernels' metadata calls the families of devices.
_BACKENDS = {"hip": "rocm"}


def write_hub(specs: Sequence[PackageSpec], reports: Sequence[BuildReport]) -> Path:
    """Writes ``hub`` into the folder of a written package, in place of an older one, and returns it. Raises
    PackageError where the package has a name that the hub does not take, or cannot be written."""
    report = reports[0]
    target = report.out_dir / "hub"
    texts = {f"{VARIANT}/{name}": text for name, text in variant_texts(specs[0], report.build_id).items()}
    texts["README.md"] = card(specs, report.build_id)
    with scratch_folder(report.out_dir) as scratch:
        made = scratch / "hub"
        for place, each in zip(places(specs), reports, strict=True):
            _copy(each.library, made / VARIANT / place.library)
        for name in FOR_TORCH:
            _copy(report.out_dir / "python" / report.name / name, made / VARIANT / name)
        for name, text in texts.items():
            _write(made / name, text)
        _write(made / VARIANT / "metadata.json", _metadata(specs[0], report.build_id, made / VARIANT))
        if target.exists():
            os.replace(target, scratch / "old")
        os.replace(made, target)
    return target


def variant_texts(spec: PackageSpec, build_id: str) -> dict[str, str]:
    """The Python files of the build that are made for this package."""
    kernels = {function_name(kernel): kernel.name for kernel in by_name(spec)}
    return {
        "__init__.py": render(
            "hub_init.py",
            name=spec.name,
            version=python_doc(spec.version),
            version_string=python_string(spec.version),
            example=next(iter(kernels)),
            kernels="\n".join(f'{var} = function("{name}")' for var, name in kernels.items()),
            all="\n".join(f'    "{name}",' for name in kernels),
        ),
        "_ops.py": render("hub_ops.py", namespace=identity(spec, build_id), build_id=build_id),
        "layers.py": render("hub_layers.py", layers="".join(map(layer_text, layers_of(spec)))),
    }


#: The hub's word where the manifest says none: the kernels package loads no build without a license.
_NO_LICENSE = "unknown"


def _metadata(spec: PackageSpec, build_id: str, folder: Path) -> str:
    """metadata.json of the build, with the digests of its files."""
    files = {
        path.relative_to(folder).as_posix(): base64.b64encode(hashlib.sha256(path.read_bytes()).digest())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    content = {
        "id": identity(spec, build_id),
        "name": hub_name(spec.name),
        "version": hub_version(spec),
        "license": spec.license or _NO_LICENSE,
        "python-depends": [],
        "backend": _backend(spec),
        "digest": {"algorithm": "sha256", "files": {name: text.decode() for name, text in files.items()}},
    }
    return json_text(content, indent=2) + "\n"


def _backend(spec: PackageSpec) -> dict[str, str]:
    """CPUs where the library has code for them: a machine without the right GPU is then served, too. No list
    of architectures, which would refuse it."""
    names = [family.name for family in families_in(spec)]
    chosen = host_family().name if host_family().name in names else names[0]
    return {"type": _BACKENDS.get(chosen, chosen)}


def _copy(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, target)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
