"""The Python package ``python/<name>``: the kernels as functions, typed stubs, the loader beside them."""

from __future__ import annotations

import keyword
from collections.abc import Set
from pathlib import Path

from tilec.dtypes import lookup
from tilec.package.bindings import doors
from tilec.package.bindings.binds import hidden_dims
from tilec.package.model import KernelRecord, PackageSpec, ParamRecord
from tilec.package.templates import render
from tilec.package.text.escape import python_doc, python_number, python_string
from tilec.systems import SYSTEMS

#: Files of tilec that are copied as they are: for operators of torch, and all.
FOR_TORCH = (
    "loader.py",
    "operands.py",
    "torch_ops.py",
    "torch_autocast.py",
    "torch_gradients.py",
    "torch_schema.py",
)
COPIED = (*FOR_TORCH, "jax_ops.py", "jax_gradients.py", "jax_targets.py")
#: Names that the package uses itself.
_RESERVED = frozenset(
    """BUILD_ID Any Callable Kernel LaunchError Library LibraryError Path Protocol TypeVar annotations
    jax_functions jax_gradients jax_ops jax_targets library load loader operands overload register_torch_ops
    torch_autocast torch_gradients torch_ops torch_schema""".split()
)
#: The keywords that every call takes.
_HOW = "serial: bool = False, num_workers: int = 0, variant: int | None = None, stream: int | None = None"


def python_files(spec: PackageSpec, build_id: str) -> dict[str, str]:
    """The texts of the package by their paths; ``spec`` has its kernels sorted by name."""
    names = [module_name(kernel.name, _RESERVED) for kernel in spec.kernels]
    pairs = zip(names, spec.kernels, strict=True)
    here = Path(__file__).parents[2] / "portable"
    texts = {
        "__init__.py": render(
            "python_init.py",
            name=spec.name,
            version=python_doc(spec.version),
            version_string=python_string(spec.version),
            build_id=build_id,
            files=", ".join(f'"{each.library.format(name=spec.name)}"' for each in SYSTEMS),
            example=names[0],
            kernels="".join(f'{name} = library.kernels["{kernel.name}"]\n' for name, kernel in pairs),
            all="\n".join(f'    "{name}",' for name in names),
        ),
        "__init__.pyi": render("python_init.pyi", kernels="".join(map(_stub, names, spec.kernels))),
        **{name: (here / name).read_text(encoding="utf-8") for name in COPIED},
        "py.typed": "",
    }
    return {f"python/{spec.name}/{path}": text for path, text in texts.items()}


def _stub(name: str, kernel: KernelRecord) -> str:
    """The class of one kernel: a call with every parameter, and one without the outputs."""
    given = [param for param in kernel.params if not param.output]
    outputs = [param for param in kernel.params if param.output]
    hidden = hidden_dims(kernel)
    docs = "\n".join(f"        {param.name}: {python_doc(doors.describe(param))}" for param in kernel.params)
    returned = {0: "None", 1: "_Array"}.get(len(outputs), f"tuple[{', '.join(['_Array'] * len(outputs))}]")
    calls = [_call(given, hidden, returned)]
    if outputs:
        calls.append(_call(list(kernel.params), hidden, "None"))
    lead = "    @overload\n" if len(calls) > 1 else ""
    return (
        f'\nclass _{name}(Kernel):\n    """{python_doc(kernel.doc or kernel.name)}\n\n{docs}\n    """\n\n'
        + "".join(f"{lead}    {call}\n" for call in calls)
        + f"\n{name}: _{name}\n"
    )


def _call(params: list[ParamRecord], hidden: list[str], returned: str) -> str:
    """A default needs defaults behind it; the loader fills in the others, too, when they are named."""
    texts: list[str] = []
    tail = True
    for param in reversed(params):
        tail = tail and not param.is_tensor and param.default is not None
        default = f" = {python_number(param.default)}" if param.default is not None else ""
        texts.insert(0, f"{_parameter(param.name)}: {_type(param)}{default if tail else ''}")
    dims = "".join(f"{_parameter(name)}: int = ..., " for name in hidden)
    arguments = ", ".join(["self", *texts, f"*, {dims}{_HOW}"])
    return f"def __call__({arguments}) -> {returned}: ..."


def _type(param: ParamRecord) -> str:
    if param.pointer:
        return "_Array | int"
    if param.is_tensor:
        return "_Array"
    dtype = lookup(param.dtype)
    return "float" if dtype.is_float else "bool" if dtype.kind == "bool" else "int"


def module_name(name: str, reserved: Set[str]) -> str:
    """What a kernel is called in a module that has ``reserved`` names of its own."""
    return f"{name}_" if name in reserved or keyword.iskeyword(name) else name


def _parameter(name: str) -> str:
    """A keyword of Python cannot be a parameter's name: it is then given in order, or by ``**``."""
    return f"{name}_" if keyword.iskeyword(name) or name == "self" else name
