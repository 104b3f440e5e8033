"""The frame of a kernel whose warps have roles: its function, its shared memory, the branch between roles."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tilec.backends.cuda.launch import LoweredCudaLaunch
from tilec.backends.cuda.warp_roles.emit.build import i32, let, ptx, when
from tilec.backends.cuda.warp_roles.emit.context import RoleContext
from tilec.backends.cuda.warp_roles.emit.parameters import map_code
from tilec.backends.cuda.warp_roles.nodes import WARPGROUP
from tilec.backends.cuda.warp_roles.ring import TILE_ALIGNMENT
from tilec.backends.cuda.warp_roles.roads import roads_of
from tilec.backends.cuda.warp_roles.strategy import roles_of
from tilec.ir.nodes import Kernel, Launch, Stmt

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.warp_roles.nodes import Roles, TensorMap
    from tilec.targets import Target

R = TypeVar("R", bound=Stmt)
C = TypeVar("C", bound=RoleContext)


class Entry(ABC, Generic[R, C]):
    """Builds the function of one launch. ``kind`` is the statement of roles, ``schedule`` the word by which a
    schedule says which of its keys have no effect. A strategy gives the context and the tensor maps, in the
    order of parameters, and says what its parameters are and what each role does."""

    kind: type[R]
    schedule: ClassVar[str]
    views: Mapping[Var, Var]

    def __init__(self, kernel: Kernel, launch: Launch, target: Target, marks: bool) -> None:
        self.kernel, self.launch, self.target = kernel, launch, target
        self.roles: R = roles_of(launch, self.kind)
        self.views = {}
        self.maps = self.tensor_maps()
        self.ctx = self.context(marks)

    def lowered(
        self, grid: Sequence[str], how: str, notes: Iterable[str], together: int = 1, **facts: Any
    ) -> LoweredCudaLaunch:
        """The function and how to launch it: ``how`` its warps work, ``together`` blocks at least share a
        multiprocessor; ``facts`` are further fields."""
        asked = self.launch.schedule.without_effect(self.schedule)
        return LoweredCudaLaunch(
            self._function(together),
            tuple(grid),
            self.launch.threads,
            notes=(*self.launch.notes, *notes, *asked),
            roads=roads_of(self.launch, (self.roles,), f"warp roles: {how}", self.ctx.roads),
            shared_bytes=self.ctx.plan.total,
            tensor_maps=tuple(map_code(found, self.kernel, self.views) for found in self.maps),
            **facts,
        )

    def _function(self, together: int) -> tirx.PrimFunc:
        with IRBuilder() as builder, T.prim_func(is_private=False, s_tir=False):
            T.func_name("kernel")
            T.func_attr({"tirx.noalias": True, "tirx.launch_bounds_min_blocks_per_sm": together})
            self.grid()
        return builder.get()

    def block(self, thread: Var, consumers: int) -> None:
        """What the threads of a block do, ``consumers`` warpgroups of them and behind those the loaders."""
        ctx = self.ctx
        memory = T.alloc_buffer((ctx.plan.total,), "uint8", scope="shared.dyn", align=TILE_ALIGNMENT)
        ctx.pool = memory
        ctx.base = let("shared", T.cuda.cvta_generic_to_shared(memory.ptr_to([0])))
        self.name_threads(thread)
        leader = tirx.EQ(thread, i32(consumers * WARPGROUP))
        with when(leader):
            self.open_barriers()
        self.begin()
        with T.If(self.loads(thread)):
            with T.Then():
                self.produce(thread, leader)
            with T.Else():
                self.consume(thread)
        self.end()

    @abstractmethod
    def tensor_maps(self) -> list[TensorMap]:
        """The maps of the launch in the order of its parameters."""

    @abstractmethod
    def context(self, marks: bool) -> C:
        """The state that emission begins with; ``marks`` as in
        `tilec.backends.cuda.emit.context.DeviceContext`."""

    @abstractmethod
    def grid(self) -> None:
        """Declares parameters, and opens blocks and threads around `block`."""

    def name_threads(self, thread: Var) -> None:
        """Where all threads stand."""

    @abstractmethod
    def open_barriers(self) -> None:
        """What one thread sets up."""

    @abstractmethod
    def begin(self) -> None:
        """What all threads do behind that."""

    @abstractmethod
    def loads(self, thread: Var) -> Expr:
        """Whether a thread is a loader."""

    @abstractmethod
    def produce(self, thread: Var, leader: Expr) -> None:
        """What the loaders do."""

    @abstractmethod
    def consume(self, thread: Var) -> None:
        """What the consumers do."""

    def end(self) -> None:
        """What all threads do at the end."""


def prefetch(maps: Iterable[Expr]) -> None:
    """Brings tensor maps near."""
    for each in maps:
        ptx("prefetch.tensormap", T.address_of(each))


def fence_barriers() -> None:
    """Barriers that were set up are so for everybody, TMA too. A proxy fence of all memory would wait for the
    whole GPU first, for some 1,000 clocks."""
    ptx("fence.mbarrier_init.release.cluster")


def take_registers(roles: Roles, consumes: bool) -> None:
    """The registers of a role, where they are handed out."""
    if roles.registers is not None:
        change = "inc" if consumes else "dec"
        ptx(f"setmaxnreg.{change}.sync.aligned.u32", roles.registers[consumes])
