"""The manifest as frozen pydantic models: what each key means, its type and its default.

``docs/manifest.md`` is generated from these models; the field descriptions are its text.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    StrictStr,
    TypeAdapter,
    model_validator,
)

from tilec.families import families, family_of
from tilec.ir.guards import Guard
from tilec.manifest.fields import (
    AbsoluteTolerance,
    Automatic,
    Axis,
    ClassName,
    Condition,
    DTypes,
    Edition,
    Expression,
    GuardList,
    Kinds,
    Layers,
    License,
    Mismatches,
    Names,
    OneGuard,
    PackageName,
    Points,
    PythonName,
    RelativeTolerance,
    ScheduleSource,
    SourceText,
    Values,
    Version,
    not_empty,
)
from tilec.targets import Target


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


class Table(BaseModel):
    """Base of all tables: unknown keys are errors, values do not change."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, arbitrary_types_allowed=True, populate_by_name=False
    )


class Package(Table):
    """`[package]`: the library."""

    name: PackageName = Field(
        description="Library name and prefix of every C symbol: a C identifier of at most 64 characters, and "
        "no word, namespace, module or library of C, C++ or Python.",
        examples=['name = "engine"'],
    )
    version: Version = Field(
        default="0.1.0",
        examples=['version = "1.2.0"'],
        description="Version of the library: numbers with dots, then words, such as `1.2.0` or `2.0.0-rc.1`.",
    )

    license: License | None = Field(
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
        "`rounds(blocks)`, which is blocks over the number of multiprocessors (on a CPU: workers), "
        "`waves(blocks)`, which rounds that up, and, on CPUs, `on(feature, there, elsewhere)`: what a call "
        "takes on processors that have a feature of targets, whatever the code was made for, and what on "
        "others.",
        examples=[
            'cost = "3 + waves(ceil(M / 128) * ceil(N / 128)) * (1 + 0.01 * K)"',
            'cost = "rounds(N) * K * on(zen4, 1.3e-5, 2.6e-5)"',
        ],
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


class Tune(Table):
    """`[kernel.tune]`: what `tilec tune` searches.

    Every other key is a config key with the values to try: a list, or `{ min = 2, max = 6, step = 2 }`. Lists
    multiply.
    """

    model_config = ConfigDict(extra="allow", frozen=True, arbitrary_types_allowed=True)
    __pydantic_extra__: dict[str, Axis]

    where: tuple[Condition, ...] = Field(
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
    points: Points | None = Field(
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

    name: ClassName = Field(description="What the class is called.", examples=['name = "RMSNorm"'])
    forward: Names = Field(
        description="The parameters of this kernel that `forward` takes, in order.",
        examples=['forward = ["X"]'],
    )
    members: dict[StrictStr, PythonName] = Field(
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

    edition: Edition = Field(description="Version of this format.", examples=["edition = 1"])
    extends: StrictStr | None = Field(
        default=None,
        description="Another manifest, whose kernels stand in place of `kernel` tables: a package and "
        "targets of its own for them. Kernels that are for none of these are left out, with a warning. Tuned "
        "configs are those beside this file.",
        examples=['extends = "engine.toml"'],
    )
    package: Package = Field(description="The library.")
    targets: Targets = Field(description="What machine code the library holds.")
    kernel: Annotated[tuple[Kernel, ...], AfterValidator(not_empty)] = Field(description="The kernels.")
