"""The manifest as frozen pydantic models: what each key means, its type and its default.

``docs/manifest.md`` is generated from these models; the field descriptions are its text.
"""

from __future__ import annotations

import itertools
import keyword
import re
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal, TypeAlias, Union

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    TypeAdapter,
    model_validator,
)

from tilec.dtypes import DTYPES
from tilec.families import families, family_of
from tilec.ir.guards import Guard
from tilec.manifest.conditions import check_condition
from tilec.manifest.expressions import check_expression
from tilec.manifest.families import KINDS, LAYERS
from tilec.manifest.guards import parse_guard, same_values
from tilec.manifest.layers import parts
from tilec.reserved import C_WORDS, is_identifier, package_problem, shown
from tilec.targets import Target

Scalar: TypeAlias = Union[StrictBool, StrictInt, StrictFloat, StrictStr]  # noqa: UP007 (evaluated on 3.10)

_SCHEDULES = re.compile(r"[^:]+\.toml:[A-Za-z_]\w*")
_SOURCE = re.compile(r"[^:]+:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
#: PEP 440 without epochs, and semantic versions: numbers with dots, then words.
_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*([.+_-]?[A-Za-z0-9]+)*")
_LONGEST_VERSION = 64
_LICENSE = re.compile(r"[A-Za-z0-9.+() -]{1,100}")


def is_c_identifier(text: str) -> bool:
    """Whether a text may be a C and C++ name."""
    return is_identifier(text) and text not in C_WORDS


def _package_name(text: str) -> str:
    problem = package_problem(text)
    if problem:
        raise ValueError(problem)
    return text


def _version(text: str) -> str:
    if len(text) > _LONGEST_VERSION or not text.isascii() or not _VERSION.fullmatch(text):
        raise ValueError(
            f'"{shown(text)}" is no version: numbers with dots, then words behind . - + or _, such as 1.2.0, '
            "1.0rc1 or 2.0.0-beta.1+cuda12"
        )
    return text


def _license(text: str) -> str:
    if not _LICENSE.fullmatch(text):
        raise ValueError(
            f'"{shown(text)}" is no SPDX expression, such as apache-2.0 or "MIT OR BSD-3-Clause"'
        )
    return text


def _python_name(text: str) -> str:
    if not is_identifier(text) or keyword.iskeyword(text):
        raise ValueError(f'"{shown(text)}" is no name of Python')
    return text


def _class_name(text: str) -> str:
    if not text[:1].isupper():
        raise ValueError(f'"{shown(text)}" is no name of a class: start it with a capital letter')
    return _python_name(text)


def _schedule_source(text: str) -> str:
    if not _SCHEDULES.fullmatch(text):
        raise ValueError('it is written "file.toml:name"')
    return text


def _source_text(text: str) -> str:
    if not _SOURCE.fullmatch(text):
        raise ValueError(f'"{text}" is not of the form "path/to/file.py:name" or "package.module:name"')
    return text


def _guard_list(value: object) -> tuple[Guard, ...]:
    """One entry or a list of entries, no two of which admit the same dimensions."""
    entries = value if isinstance(value, (list, tuple)) else [value]
    if not entries:
        raise ValueError("the list is empty: give at least one integer or guard")
    guards = tuple(parse_guard(entry) for entry in entries)
    for at, guard in enumerate(guards):
        if any(same_values(guard, earlier) for earlier in guards[:at]):
            raise ValueError(f'two variants would have the same guard "{guard}"')
    return guards


def _one_guard(value: object) -> Guard:
    return value if isinstance(value, Guard) else parse_guard(value)


def _not_empty(value: tuple[Any, ...]) -> tuple[Any, ...]:
    if not value:
        raise ValueError("the list is empty")
    return value


def _distinct(value: tuple[Any, ...]) -> tuple[Any, ...]:
    seen = [(type(item), item) for item in _not_empty(value)]
    if len(set(seen)) != len(seen):
        raise ValueError("the list holds the same value twice")
    return value


def _no_truth(value: object) -> object:
    """`true` is 1 to Python, and no number to a person."""
    if isinstance(value, bool):
        raise ValueError(f"{value!r} is no number")
    return value


def _expression(value: object) -> str:
    """An integer stands for itself."""
    if type(value) is int:
        return str(value)
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is neither an integer nor an expression")
    return check_expression(value)


def _known(what: str, known: Iterable[str]) -> Callable[[tuple[str, ...]], tuple[str, ...]]:
    """A check that every name is one of ``known``, joined names part by part."""
    names = tuple(known)

    def check(value: tuple[str, ...]) -> tuple[str, ...]:
        for name in (part for each in _distinct(value) for part in parts(each)):
            if name not in names:
                raise ValueError(f'"{name}" is no {what}; there are {", ".join(names)}')
        return value

    return check


#: In place of a config.
Automatic: TypeAlias = Literal["auto"]


def given_values(config: dict[str, Any] | Automatic) -> dict[str, Any]:
    """What a ``config`` gives; nothing where it is ``"auto"``."""
    return {} if config == "auto" else config


def searches(entry: Kernel) -> tuple[Tune, ...]:
    """The ``tune`` table of an entry, if it has one, and those for some of its targets."""
    return () if entry.tune is None else (entry.tune, *entry.tune.on.values())


def given_tolerance(table: Kernel | Override | Schedule) -> dict[str, float]:
    """What a table says about checking results: any of rtol, atol, max_mismatch."""
    given = {name: getattr(table, name) for name in ("rtol", "atol", "max_mismatch")}
    return {name: value for name, value in given.items() if value is not None}


RelativeTolerance = Annotated[
    StrictFloat | None,
    Field(
        ge=0,
        examples=["rtol = 1e-3"],
        description="Relative tolerance of verify. Default: what a wider table says, or by dtype.",
    ),
]
AbsoluteTolerance = Annotated[
    StrictFloat | None,
    Field(
        ge=0,
        examples=["atol = 1e-3"],
        description="Absolute tolerance of verify. Default: what a wider table says, or by dtype.",
    ),
]
Mismatches = Annotated[
    StrictFloat | None,
    Field(
        ge=0,
        le=1,
        examples=["max_mismatch = 0.01"],
        description="Share of elements that may miss the tolerance. Default: what a wider table says, or 0.",
    ),
]
ScheduleSource = Annotated[StrictStr, AfterValidator(_schedule_source)]
SourceText = Annotated[StrictStr, AfterValidator(_source_text)]
GuardList = Annotated[tuple[Guard, ...], BeforeValidator(_guard_list)]
OneGuard = Annotated[Guard, BeforeValidator(_one_guard)]
Expression = Annotated[str, BeforeValidator(_expression)]
Layers = Annotated[tuple[StrictStr, ...], AfterValidator(_known("layer", LAYERS))]
Kinds = Annotated[tuple[StrictStr, ...], AfterValidator(_known("kind of model", KINDS))]
DTypes = Annotated[tuple[StrictStr, ...], AfterValidator(_known("element type", DTYPES))]
Names = Annotated[tuple[StrictStr, ...], AfterValidator(_distinct)]
Values = Annotated[tuple[Scalar, ...], AfterValidator(_distinct)]


class Table(BaseModel):
    """Base of all tables: unknown keys are errors, values do not change."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, arbitrary_types_allowed=True, populate_by_name=False
    )


class Package(Table):
    """`[package]`: the library."""

    name: Annotated[StrictStr, AfterValidator(_package_name)] = Field(
        description="Library name and prefix of every C symbol: a C identifier of at most 64 characters, and "
        "no word, namespace, module or library of C, C++ or Python.",
        examples=['name = "engine"'],
    )
    version: Annotated[StrictStr, AfterValidator(_version)] = Field(
        default="0.1.0",
        examples=['version = "1.2.0"'],
        description="Version of the library: numbers with dots, then words, such as `1.2.0` or `2.0.0-rc.1`.",
    )

    license: Annotated[StrictStr, AfterValidator(_license)] | None = Field(
        default=None,
        examples=['license = "apache-2.0"'],
        description="The licence of the kernels, an SPDX expression, for the card of `build --hub`.",
    )


class Targets(Table):
    """`[targets]`: what machine code the library holds."""

    cpu: Names = Field(
        default=(),
        description='CPU targets, `level[+feature...]`, such as `"x86-64-v3"` or `"aarch64+dotprod"`.',
        examples=['cpu = ["x86-64-v2", "x86-64-v3"]'],
    )
    cuda: Names = Field(
        default=(),
        description='GPU architectures, such as `"sm_80"`, `"sm_90a"` or `"sm_120a"`.',
        examples=['cuda = ["sm_80", "sm_90a"]'],
    )
    hip: Names = Field(
        default=(),
        description='Processors of AMD GPUs, such as `"gfx942"` or `"gfx1100"`.',
        examples=['hip = ["gfx942", "gfx1100"]'],
    )
    metal: Names = Field(
        default=(),
        description='Versions of Metal for Apple GPUs: `"metal3"`.',
        examples=['metal = ["metal3"]'],
    )
    _others: dict[str, tuple[str, ...]] = PrivateAttr(default_factory=dict)
    host: StrictStr | Names | None = Field(
        default=None,
        description="What the library runs on: architecture, system and the oldest version of that, such as "
        '`"x86_64-linux-gnu.2.17"`, `"aarch64-macos.12"` or `"x86_64-windows"`; a list makes one package '
        "with a library for each. Default: the architecture of this machine, Linux, glibc 2.17.",
        examples=['host = "x86_64-linux-gnu.2.17"'],
    )

    @model_validator(mode="wrap")
    @classmethod
    def _read_others(cls, data: Any, read: ModelWrapValidatorHandler[Targets]) -> Targets:
        """Keys of families that are registered beside these."""
        known = {family.name for family in families()} - set(cls.model_fields)
        others = {key: data[key] for key in data if key in known} if isinstance(data, dict) else {}
        made = read({key: data[key] for key in data if key not in known} if others else data)
        made._others.update({key: TypeAdapter(Names).validate_python(names) for key, names in others.items()})
        return made

    def of(self, family: str) -> tuple[str, ...]:
        """The names of the targets of a family."""
        named: tuple[str, ...] = {**dict(self), **self._others}.get(family, ())
        return named

    def and_one(self, family: str, name: str) -> Targets:
        """These, and one more of a family."""
        names = (*self.of(family), name)
        if family in type(self).model_fields:
            return self.model_copy(update={family: names})
        made = self.model_copy()
        made._others = {**self._others, family: names}
        return made


class Schedule(Table):
    """`schedules` of an override: a config, what it costs, and how exact it is.

    In a file of their own they are tables of one name, `[[products_16]]`.
    """

    config: dict[StrictStr, Any] = Field(
        description="Config values on top of all others.", examples=["config = { bM = 64 }"]
    )
    cost: StrictStr = Field(
        description="Microseconds that a call is expected to take, from numbers, dims, `+ - *`, `/` by a "
        "number or by `max(number, ...)`, `min` and `max` of two, `ceil` (but for a millionth), "
        "`rounds(blocks)`, which is blocks over the number of multiprocessors (on a CPU: workers), and "
        "`waves(blocks)`, which rounds that up.",
        examples=['cost = "3 + waves(ceil(M / 128) * ceil(N / 128)) * (1 + 0.01 * K)"'],
    )
    dims: dict[StrictStr, OneGuard] = Field(
        default={},
        description="Guards beside those of the variant: it may serve such calls alone. Of all that may "
        "serve a call the cheapest is taken; where several cost the same, the one with the narrowest guards.",
        examples=['dims = { N = "129..256" }'],
    )
    rtol: RelativeTolerance = None
    atol: AbsoluteTolerance = None
    max_mismatch: Mismatches = None


class Override(Table):
    """`[[kernel.override]]`: config values, and tolerances, for some of the variants.

    It applies to a variant when the target is listed, or a CPU of its level with fewer features is, the
    kernel has one of the values of `for` given here and each guard given here follows from the variant's. The
    most specific override that gives a key wins (more features before fewer, a target before its family, a
    family before `gpu`), then the one later in the file. One that is for none of the
    manifest's targets has no effect: `check` and `build` count these, and name them with `-v` and in
    `--json`.
    """

    for_: dict[StrictStr, Values] = Field(
        default={},
        alias="for",
        description="Some of the values of the kernel's `for`, by parameter. Default: all.",
        examples=['for = { dtype = ["float32"] }'],
    )
    targets: Names | None = Field(
        default=None,
        description="`gpu`, families or names of targets, as of a kernel. Default: all.",
        examples=['targets = ["gpu"]'],
    )
    dims: dict[StrictStr, OneGuard] = Field(
        default={}, description="Dimension name to one integer or guard.", examples=['dims = { M = "1..64" }']
    )
    config: dict[StrictStr, Any] | Automatic = Field(
        default={},
        description='Config values that replace those of the kernel; `"auto"` as there.',
        examples=["config = { bM = 64 }"],
    )
    schedules: tuple[Schedule, ...] | ScheduleSource | tuple[ScheduleSource, ...] | None = Field(
        default=None,
        description='Several configs for the same shapes, or where they are: `"costs.toml:products"`, or a '
        "list of such, all of which are one. The library takes the one of least cost for each call. Tuned "
        "configs do not replace them.",
        examples=['schedules = "llm.schedules.toml:products_16"'],
    )
    rtol: RelativeTolerance = None
    atol: AbsoluteTolerance = None
    max_mismatch: Mismatches = None


class ModelLayers(Table):
    """`[[kernel.model]]`: layers of transformer models that the kernel computes.

    `tilec check --model config.json --tokens 1..8192` asks who serves them. Sizes are expressions of
    integers, `+ - * // %`, `min`, `max` and `cdiv` of two, brackets, and names: every integer of the
    configuration file by its key (`hidden_size`, `intermediate_size`, `num_attention_heads`, `vocab_size`),
    `head_dim` and `num_key_value_heads` also where it leaves them out, `query_row`, `key_row` and `gate_row`
    (how far apart rows are that a product leaves, which may be one for several layers), `tokens` (the rows of
    a step) and `context` (the longest sequence; `max_position_embeddings` unless `--context` says otherwise).
    Of a file with a `text_config`, that is the model.

    Which of its kind's layers a model has, and how often, follows from the file: biases, experts, windows
    shorter than `context`, a `lm_head.tied` whose weights are the table of embeddings. What can be folded
    into weights as they are loaded is no layer: scales of queries, embeddings, residuals and logits, the 1
    that is added to weights of norms, the order of the pairs that a rotary embedding turns. Nor is what
    writes into a cache. `quantization_config` is not read, nor is what kernels have as args (the eps of a
    norm) compared. Where a call computes what another does and more, on all targets of it, the other is not
    made.
    """

    layers: Layers = Field(
        description='Names of layers, one call for each; `"mlp.up+mlp.act"` is one call for several.',
        examples=['layers = ["mlp.up"]'],
    )
    dims: dict[StrictStr, Expression] = Field(
        description="Every dimension of the kernel to its size, an integer or an expression.",
        examples=['dims = { M = "tokens", N = 4096 }'],
    )
    kinds: Kinds | None = Field(
        default=None,
        description="Kinds of models this is for. Default: all that have the layers.",
        examples=['kinds = ["llama"]'],
    )
    dtypes: DTypes | None = Field(
        default=None,
        description="Element types of models this is for. Default: the kernel's `dtype` in `for` or `args`; "
        "without one, all.",
    )


def _axis(value: object) -> tuple[Any, ...]:
    """The values that tuning tries for one config key: a list, or a range of integers, ends included."""
    if isinstance(value, dict):
        value = _steps(value)
    if not isinstance(value, (list, tuple)) or not value:
        raise ValueError(
            f"{value!r} is not a list of values; write [64, 128] or {{ min = 1, max = 4, step = 1 }}"
        )
    values = tuple(value)
    if len({repr(one) for one in values}) != len(values):
        raise ValueError("the list holds the same value twice")
    return values


def _steps(table: dict[str, Any]) -> list[int]:
    known = {"min", "max", "step"}
    if not {"min", "max"} <= set(table) <= known or any(type(one) is not int for one in table.values()):
        raise ValueError(f"{table!r} is no range; write {{ min = 1, max = 4, step = 1 }} with integers")
    step = table.get("step", 1)
    if step < 1 or table["min"] > table["max"]:
        raise ValueError(f"{table!r} holds no value: step is 1 or more, min at most max")
    return list(range(table["min"], table["max"] + 1, step))


def _condition(text: str) -> str:
    return check_condition(text)


def _point_list(value: object) -> tuple[Any, ...]:
    """Integers for the one dim that is no integer, tables of dims, or one table of lists, which multiply."""
    if isinstance(value, dict):
        lists = {name: one if isinstance(one, (list, tuple)) else [one] for name, one in value.items()}
        value = [dict(zip(lists, each, strict=True)) for each in itertools.product(*lists.values())]
    if not isinstance(value, (list, tuple)) or not value:
        raise ValueError(f"{value!r} is no list of points; write [1, 8] or [{{ M = 8, N = 4096 }}]")
    for point in value:
        numbers = point.values() if isinstance(point, dict) else [point]
        if any(type(number) is not int or number < 1 for number in numbers):
            raise ValueError(f"{point!r} is no point: dims are integers of 1 or more")
    return tuple(value)


Axis = Annotated[tuple[Any, ...], BeforeValidator(_axis)]


class Tune(Table):
    """`[kernel.tune]`: what `tilec tune` searches.

    Every other key is a config key with the values to try: a list, or `{ min = 2, max = 6, step = 2 }`. Lists
    multiply.
    """

    model_config = ConfigDict(extra="allow", frozen=True, arbitrary_types_allowed=True)
    __pydantic_extra__: dict[str, Axis]

    where: tuple[Annotated[StrictStr, AfterValidator(_condition)], ...] = Field(
        default=(),
        description='Conditions over config keys, args and pinned dims, such as `"bM * bN <= 32768"`; a '
        "config for which one does not hold is left out.",
    )
    configs: SourceText | None = Field(
        default=None,
        description="`configs(dims, target) -> list` of configs, in place of lists, or beside them.",
    )
    space: Literal["auto"] | None = Field(
        default=None,
        description='`"auto"`: beside the lists here, sizes of tiles, stages and threads that the parameters '
        "of the factory allow (tuning.md).",
        examples=['space = "auto"  # values to try stand beside it: bM = [64, 128]'],
    )
    points: Annotated[tuple[Any, ...], BeforeValidator(_point_list)] | None = Field(
        default=None,
        description="Dims to measure at: `[1, 8, 32]` for the one dim that is no integer, "
        "`[{ M = 8, N = 4096 }]`, or `{ M = [1, 8], N = 4096 }`. A guard takes those that it admits. "
        "Default: an end of each range, 4096 where there is none.",
    )
    on: dict[StrictStr, Tune] = Field(
        default={},
        description="Another table for one target, a family or `gpu`: `[kernel.tune.on.sm_90a]`. The nearest "
        "one holds in place of this.",
    )

    @property
    def axes(self) -> dict[str, tuple[Any, ...]]:
        """Config key to the values to try."""
        return dict(self.__pydantic_extra__ or {})

    def for_target(self, target: Target) -> Tune:
        """The table that holds for a target."""
        names = (target.name, *family_of(target).groups)
        return next((self.on[name] for name in names if name in self.on), self)


class Backward(Table):
    """`[kernel.backward]`: the kernel that computes gradients, for the operators of torch."""

    kernel: StrictStr = Field(
        description="Another kernel of this manifest. `{key}` is a value of `for`.",
        examples=['kernel = "softmax_backward"'],
    )
    arguments: dict[StrictStr, StrictStr] = Field(
        description="Each of its inputs: a parameter of this kernel, or `grad` and one of its outputs for "
        "the gradient that comes in.",
        examples=['arguments = { Y = "Y", dY = "grad Y" }'],
    )
    gradients: dict[StrictStr, StrictStr] = Field(
        description="Each of its outputs: the input of this kernel whose gradient it is.",
        examples=['gradients = { dX = "X" }'],
    )


class Layer(Table):
    """`[kernel.layer]`: the layer of torch that the kernel computes, for the folder of `build --hub`.

    Axes in front of the first one of its first tensor are joined with that, and part again in the outputs.
    Several kernels may be one layer, each for an element type of that tensor.
    """

    name: Annotated[StrictStr, AfterValidator(_class_name)] = Field(
        description="What the class is called.", examples=['name = "RMSNorm"']
    )
    forward: Names = Field(
        description="The parameters of this kernel that `forward` takes, in order.",
        examples=['forward = ["X"]'],
    )
    members: dict[StrictStr, Annotated[StrictStr, AfterValidator(_python_name)]] = Field(
        default={},
        description="Parameters to the attributes of the layer that is replaced.",
        examples=['members = { W = "weight" }'],
    )


class LeftOut(Table):
    """An entry of `without`: guards that the kernel's dims list, by dimension, and the targets it is for."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, GuardList] = Field(init=False)

    targets: Names | None = None

    @property
    def dims(self) -> dict[str, tuple[Guard, ...]]:
        """The guards that are left out, by dimension."""
        return self.__pydantic_extra__


class Kernel(Table):
    """`[[kernel]]`: one kernel, or one per value of `for`."""

    name: StrictStr = Field(
        description="Name of the kernel; its C symbol is `<package>_<name>`. `{key}` is a value of `for`.",
        examples=['name = "matmul"'],
    )
    for_: dict[StrictStr, Values] = Field(
        default={},
        alias="for",
        description="Factory parameter to values: one kernel per combination. They also reach the factory.",
        examples=['for = { dtype = ["float16", "bfloat16"] }'],
    )
    source: SourceText = Field(
        description='Where the kernel is: `"kernels/gemm.py:matmul"`, relative to the manifest, or an '
        'importable `"package.module:name"`.',
        examples=['source = "kernels/gemm.py:matmul"'],
    )
    args: dict[StrictStr, Any] = Field(
        default={},
        description="Further Python arguments of the factory.",
        examples=["args = { trans_B = true }"],
    )
    targets: Names | None = Field(
        default=None,
        description="What of `[targets]` it is built for: names of targets, families (`cpu`, `cuda`, `hip`, "
        "`metal`), or `gpu` for all but `cpu`. A CPU of `[targets]` that is not named gets the code of the "
        "best named one that it runs. Default: all.",
        examples=['targets = ["cpu"]'],
    )
    dims: dict[StrictStr, GuardList] = Field(
        default={},
        description="Every symbolic dimension: an integer (compiled in), `dynamic`, `1..64`, `>=128`, "
        "`<=64`, `%16`, a conjunction such as `%16,>=128`, or a list of these. Lists multiply.",
        examples=['dims = { M = ["1..64", "dynamic"], N = 4096 }'],
    )
    without: tuple[LeftOut, ...] = Field(
        default=(),
        description="Choices among the lists of `dims` that get no variant, on all targets or those that "
        "`targets` means as an override's does: their calls go to a wider one.",
        examples=['without = [{ N = "%8", ldx = "dynamic" }, { targets = ["cpu"], N = "%8" }]'],
    )
    config: dict[StrictStr, Any] | Automatic = Field(
        default={},
        examples=["config = { bM = 128, bN = 128 }"],
        description="Tunable factory parameters, and schedule keys (schedule-keys.md). "
        '`debug = true` keeps `T.print` and `T.device_assert`, which a build leaves out. `"auto"`: a few '
        "schedules by the cost model, of which the library takes the cheapest for each call (tuning.md); "
        "values that overrides give stay.",
    )
    reference: SourceText | None = Field(
        default=None,
        description="`reference(*inputs) -> outputs` in NumPy or torch, for verify and tune.",
        examples=['reference = "kernels/gemm.py:reference"'],
    )
    peer: SourceText | None = Field(
        default=None, description="`peer(*inputs) -> outputs` in torch, for `bench --vs torch`."
    )
    inputs: SourceText | None = Field(
        default=None,
        description="`inputs(dims, rng) -> list` of arguments, for ids, page tables and lengths.",
    )
    outputs: Names | None = Field(
        default=None,
        description="All parameters that the kernel writes; checked against it. Default: inferred.",
        examples=['outputs = ["C"]'],
    )
    rtol: RelativeTolerance = None
    atol: AbsoluteTolerance = None
    max_mismatch: Mismatches = None
    fallback: Literal["none"] | None = Field(
        default=None,
        examples=['fallback = "none"'],
        description='`"none"` says that shapes which no variant admits are meant to be refused; without '
        "it they are an error of the manifest.",
    )
    backward: Backward | None = Field(
        default=None, description="The kernel of its backward pass. Default: its operator has no gradient."
    )
    layer: Layer | None = Field(
        default=None, description="The layer of torch that it computes. Default: none."
    )
    override: tuple[Override, ...] = Field(
        default=(), description="Config values and tolerances for some of the variants."
    )
    tune: Tune = Field(
        default=Tune(),
        description="What `tilec tune` searches.",
        examples=["tune = { bM = [64, 128], num_stages = { min = 2, max = 4 } }"],
    )
    model: tuple[ModelLayers, ...] = Field(
        default=(), description="Layers of transformer models that the kernel computes."
    )


class Manifest(Table):
    """The whole file."""

    edition: Annotated[Literal[1], BeforeValidator(_no_truth)] = Field(
        description="Version of this format.", examples=["edition = 1"]
    )
    extends: StrictStr | None = Field(
        default=None,
        description="Another manifest, whose kernels stand in place of `kernel` tables: a package and "
        "targets of its own for them. Kernels that are for none of these are left out, with a warning. Tuned "
        "configs are those beside this file.",
        examples=['extends = "engine.toml"'],
    )
    package: Package = Field(description="The library.")
    targets: Targets = Field(description="What machine code the library holds.")
    kernel: Annotated[tuple[Kernel, ...], AfterValidator(_not_empty)] = Field(description="The kernels.")
