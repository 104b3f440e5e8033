"""A library with CPU and CUDA code: without a driver it loads, serves CPU calls and says why it serves no
others; with a stand-in driver (programs/fake_cuda.c) it shows what it asks of a real one."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import elf
import pytest
from c_programs import compile_program
from cuda_samples import cuda_spec, kernel_of_targets

from tilec.package.dispatch.usable import may_run
from tilec.package.write import BuildReport, write_package
from tilec.targets import native_host, parse_target

#: The benchmark of warm calls, whose counters this test uses too.
DISPATCH = Path(__file__).resolve().parents[3] / "benchmarks" / "dispatch"

#: What every script below starts with: the library, CUDA arrays over host memory, the stand-in's log.
PRELUDE = """
import ctypes, os, sys, threading
import numpy as np
from tilec.portable.loader import LaunchError, load

lib = load(sys.argv[1])

class Device:
    def __init__(self, index): self.type, self.index = "cuda", index

class OnGpu:
    def __init__(self, array, index=0):
        self.array, self.shape, self.dtype, self.device = array, array.shape, array.dtype, Device(index)
    def data_ptr(self): return self.array.ctypes.data
    def stride(self): return [s // self.array.itemsize for s in self.array.strides]

def arrays(n, index=0):
    made = [np.arange(n, dtype=np.float32), np.ones(n, np.float32), np.zeros(n, np.float32)]
    return [OnGpu(each, index) for each in made]

def add(n=8, index=0, **named):
    # on n elements of a device; the result is checked
    a, b, c = arrays(n, index)
    lib.add(a, b, c=c, **named)
    assert (c.array == a.array + named.get("alpha", 1)).all()

def failing(call, *args, **named):
    try:
        call(*args, **named)
    except LaunchError as error:
        return error
    raise SystemExit("the call should have failed")

def fake():
    dll = ctypes.CDLL("libcuda.so.1")
    dll.fake_cuda_log.restype = ctypes.c_char_p
    return dll

def log(): return fake().fake_cuda_log().decode().splitlines()
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> BuildReport:
    return write_package(cuda_spec(native_host()), tmp_path_factory.mktemp("cuda"), static=True)


def run(report: BuildReport, script: str, driver: Path | None = None, **environment: str) -> str:
    """What a script prints; it runs in a process of its own, where ``driver`` is found."""
    env = {**os.environ, **environment}
    if driver is not None:
        env["LD_LIBRARY_PATH"] = str(driver)
    command = [sys.executable, "-c", PRELUDE + script, str(report.library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def has_driver() -> bool:
    return Path("/proc/driver/nvidia").exists()


# ---- without a driver ----


def test_the_library_needs_no_cuda_library(report: BuildReport) -> None:
    assert not [name for name in elf.read(report.library).needed if "cuda" in name]


@pytest.mark.skipif(has_driver(), reason="this machine has a CUDA driver")
def test_cpu_calls_are_served_without_a_driver(report: BuildReport) -> None:
    said = run(
        report,
        """
a = np.arange(100, dtype=np.float32)
assert np.allclose(lib.add(a, a, alpha=0.5), 1.5 * a)
errors = [
    failing(add),
    failing(lib.kernels["add"].select, "cuda", N=100),
    failing(lib.preload, "cuda:0"),
]
assert np.allclose(lib.add(a, a, alpha=2), 3 * a)
for error in errors:
    print(error.name, error)
print(lib.kernels["add"].explain(N=100))
""",
    )
    lines = said.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["TILEC_ERR_NO_DRIVER"] * 3
    assert "libcuda.so.1" in lines[0]
    assert "(sm_90a): rejected: it is for a GPU" in said


def test_kernels_without_cpu_code_say_so(report: BuildReport) -> None:
    script = "print(failing(lib.wide, np.zeros((1, 2), np.int32)).name)"
    assert run(report, script) == "TILEC_ERR_NO_ARCH\n"


# ---- with the stand-in ----


@pytest.mark.parametrize(
    ("capability", "served"),
    [(80, "sm_80"), (86, "sm_80"), (89, "sm_80"), (90, "sm_90a"), (100, "compute_80"), (120, "compute_80")],
)
def test_the_best_image_serves(report: BuildReport, driver: Path, capability: int, served: str) -> None:
    said = run(
        report,
        """
add(1000, alpha=0.5)
print(lib.kernels["add"].select("cuda", N=1000).target, log()[-1].replace("_even", ""))
""",
        driver,
        FAKE_CUDA=f"1 {capability} 12090",
    )
    wanted = f"launch add_{served}_0 grid 16 1 1 block 64 shared 65536 stream (nil) cluster 0 programmatic 0"
    assert said == f"{served} {wanted}\n"


#: Each capability of a device, and of the code for newer ones what serves it: its own, that of its family,
#: that of a lower minor, then PTX.
NEWER = [
    (90, "compute_90"),
    (100, "sm_100a"),
    (103, "sm_100f"),
    (110, "compute_100"),
    (120, "sm_120a"),
    (121, "sm_120"),
    (130, "compute_120"),
]


NAMES = ("sm_100a", "sm_100f", "sm_100", "sm_120a", "sm_120", "compute_120", "compute_100", "compute_90")


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> BuildReport:
    spec = replace(cuda_spec(native_host()), kernels=(kernel_of_targets("picked", NAMES),))
    return write_package(spec, tmp_path_factory.mktemp("newer"))


@pytest.mark.parametrize(("capability", "served"), NEWER)
def test_the_nearest_code_serves(newer: BuildReport, driver: Path, capability: int, served: str) -> None:
    script = 'print(lib.kernels["picked"].select("cuda", M=1, N=8).target)'
    assert run(newer, script, driver, FAKE_CUDA=f"1 {capability} 13000") == f"{served}\n"


@pytest.mark.parametrize(("capability", "served"), NEWER[:-1])
def test_the_build_knows_who_serves(capability: int, served: str) -> None:
    device = f"sm_{capability}a"
    usable = [name for name in NAMES if may_run(name, device)]
    assert max(usable, key=lambda name: parse_target(name).rank) == served


def test_ptx_serves_what_a_better_architecture_refuses(report: BuildReport, driver: Path) -> None:
    script = (
        'print(lib.kernels["add"].select("cuda", N=1001).target, lib.kernels["add"].explain("cuda", N=1001))'
    )
    said = run(report, script, driver, FAKE_CUDA="1 86 12090")
    assert said.startswith("compute_80")
    assert "(sm_80): rejected: N = 1001 is not a multiple of 2" in said
    assert "(sm_90a): rejected: this GPU may not run it" in said
    assert ": rejected: it is for a CPU" in said


@pytest.mark.parametrize(
    ("fake", "status", "text"),
    [
        ("1 75 12090", "TILEC_ERR_NO_ARCH", "7.5; there is code for sm_90a, sm_80, compute_80"),
        ("1 120 12040", "TILEC_ERR_DRIVER_TOO_OLD", "needs a driver of CUDA 12.9, this is 12.4"),
        ("0 90 12090", "TILEC_ERR_DRIVER", "CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device"),
    ],
)
def test_machines_that_cannot(report: BuildReport, driver: Path, fake: str, status: str, text: str) -> None:
    said = run(report, "e = failing(add); print(e.name, e)", driver, FAKE_CUDA=fake)
    assert said.startswith(status)
    assert text in said


def test_a_device_that_is_not_there(report: BuildReport, driver: Path) -> None:
    said = run(report, "e = failing(add, 8, 3); print(e.name, e)", driver, FAKE_CUDA="2 90 12090")
    assert said.startswith("TILEC_ERR_DEVICE")
    assert "no CUDA device 3 among 2" in said


def test_loading_happens_once_and_contexts_are_left_as_they_were(report: BuildReport, driver: Path) -> None:
    said = run(
        report,
        """
for index in (0, 1, 0, 1):
    add(64, index)
assert fake().fake_cuda_depth() == 0
print("\\n".join(line for line in log() if "launch" not in line))
""",
        driver,
        FAKE_CUDA="2 90 12090",
    )
    attribute = "attribute 8 = 65536 of add_sm_90a_0 on"
    assert said.splitlines() == [
        "retain 0",
        "load sm_90a add_sm_90a",
        f"{attribute} 0",
        "retain 1",
        f"{attribute} 1",
    ]


def test_streams_of_other_devices_are_refused(report: BuildReport, driver: Path) -> None:
    script = """
dll, context, stream = fake(), ctypes.c_void_p(), ctypes.c_void_p()
dll.cuCtxCreate_v2(ctypes.byref(context), 0, 1)
dll.cuStreamCreate(ctypes.byref(stream), 0)
dll.cuCtxPopCurrent_v2(ctypes.byref(context))
add(index=1, stream=stream.value)
add(index=0, stream=1)
error = failing(add, stream=stream.value)
print(error.name, error)
"""
    said = run(report, script, driver, FAKE_CUDA="2 90 12090")
    assert said.startswith("TILEC_ERR_DEVICE gpu_sample: the stream is of another device"), said


def test_warm_calls_do_nothing_but_ask_the_driver(report: BuildReport, driver: Path, tmp_path: Path) -> None:
    program = compile_program(
        report, report.library, "warm_cuda.c", ("-std=gnu11", f"-I{DISPATCH}"), tmp_path, native_host()
    )
    env = {**os.environ, "LD_LIBRARY_PATH": str(driver), "FAKE_CUDA": "1 80 12000", "FAKE_CUDA_QUIET": "1"}
    done = subprocess.run([program], capture_output=True, text=True, check=False, env=env, timeout=60)
    assert done.returncode == 0, done
    *counts, system_calls = done.stdout.split()
    assert counts == ["0"] * 3
    if system_calls == "-":
        pytest.skip("this kernel offers no seccomp filters")
    assert system_calls == "0"


CONTEXTS = """
dll, made, stream = fake(), ctypes.c_void_p(), ctypes.c_void_p()
def shown(**named):
    add(**named)
    print(dll.fake_cuda_last_context(), dll.fake_cuda_last_was_function())
def enter():
    dll.cuCtxCreate_v2(ctypes.byref(made), 0, 0)
"""


def test_calls_run_in_the_context_that_is_current_or_the_streams(report: BuildReport, driver: Path) -> None:
    script = """
shown(), shown()
enter()
dll.cuStreamCreate(ctypes.byref(stream), 0)
shown(), shown(stream=stream.value), shown(stream=2)
dll.cuCtxPopCurrent_v2(ctypes.byref(made))
shown(stream=stream.value), shown(stream=2), shown()
assert dll.fake_cuda_depth() == 0
"""
    said = run(report, CONTEXTS + script, driver, FAKE_CUDA="1 90 12090").splitlines()
    primary, other = "1", "100"
    assert said == [
        f"{primary} 0",  # the first call loads
        f"{primary} 1",
        *[f"{other} 0"] * 3,
        f"{other} 0",  # the stream's own context
        f"{primary} 0",  # a stream of the current context, of which there is none
        f"{primary} 1",
    ]


def test_functions_are_found_once_the_primary_context_is_used(report: BuildReport, driver: Path) -> None:
    script = """
enter()
shown(), shown()
dll.cuCtxPopCurrent_v2(ctypes.byref(made))
shown(), shown()
"""
    said = run(report, CONTEXTS + script, driver, FAKE_CUDA="1 90 12090").splitlines()
    assert said == ["100 0", "100 0", "1 0", "1 1"]


def test_threads_load_one_image_once(report: BuildReport, driver: Path) -> None:
    script = """
def work():
    for n in range(1, 200):
        add(n)
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads], [t.join() for t in threads]
print(sum(line.startswith("load") for line in log()), sum(line.startswith("launch") for line in log()) > 100)
"""
    assert run(report, script, driver, FAKE_CUDA="1 90 12090") == "1 True\n"


def test_capture_wants_a_preload(report: BuildReport, driver: Path) -> None:
    script = """
fake().fake_cuda_capture(1)
print(failing(add).name)
lib.kernels["add"].preload("cuda")
print(sum(line.startswith("load") for line in log()))
add(stream=0x10)
print(log()[-1])
"""
    said = run(report, script, driver, FAKE_CUDA="1 90 12090").splitlines()
    assert said[:2] == ["TILEC_ERR_NOT_PRELOADED", "1"], "PTX cannot be reached behind an open sm_90a variant"
    assert "stream 0x10" in said[2]


def test_preload_loads_what_dispatch_can_reach(report: BuildReport, driver: Path) -> None:
    script = 'lib.kernels["add"].preload("cuda"); print([line for line in log() if line.startswith("load")])'
    said = run(report, script, driver, FAKE_CUDA="1 86 12090")
    assert said == "['load sm_80 add_sm_80', 'load compute_80 add_compute_80']\n"


def test_grids_are_held_to_the_limits_of_cuda(report: BuildReport, driver: Path) -> None:
    script = """
lib.wide(OnGpu(np.zeros((1, 65535), np.int32)))
error = failing(lib.wide, OnGpu(np.zeros((1, 65536), np.int32)))
print(error.name, error)
lib.wide(OnGpu(np.zeros((1, 0), np.int32)))
print(sum(line.startswith("launch") for line in log()))
"""
    said = run(report, script, driver, FAKE_CUDA="1 80 12000")
    assert "TILEC_ERR_SHAPE" in said
    assert "65536 blocks along y, CUDA takes up to 65535" in said
    assert said.splitlines()[-1] == "1", "an empty grid launches nothing"


def test_persistent_kernels_fill_the_device_once(report: BuildReport, driver: Path) -> None:
    script = """
for n in (9, 1000):
    lib.persistent(OnGpu(np.zeros((1, n), np.int32)))
    print(log()[-1])
"""
    few, many = run(report, script, driver, FAKE_CUDA="1 80 12000").splitlines()
    assert "grid 9 1 1" in few
    assert "grid 18 1 1" in many, "10 multiprocessors hold 20 blocks, which are 6 clusters of 3"
    assert many.endswith("cluster 3 programmatic 0")


def test_the_multiprocessors_of_the_device_follow_the_dims(report: BuildReport, driver: Path) -> None:
    script = """
import tilec.portable.loader as loader
made = []
def memory(device, stream, size):
    made.append(size)
    block = np.zeros(size + 256, np.uint8)
    return block, (block.ctypes.data + 255) // 256 * 256, size
loader._cuda_memory = memory
lib.per_multiprocessor(OnGpu(np.zeros((300, 16), np.int32)))
print(made, *log()[-2:])
kernel = lib.kernels["per_multiprocessor"].metadata
print([dim["name"] for dim in kernel["dims"]], kernel["variants"][0]["takes_num_sms"])
"""
    launched, says = run(report, script, driver, FAKE_CUDA="1 80 12000").splitlines()
    assert launched.startswith("[12032] dims 300 16 10 launch per_multiprocessor_0 grid 10 1 1"), (
        "the stand-in has 10 multiprocessors"
    )
    assert says == "['M', 'N'] True"


def test_programmatic_launches_say_so_to_the_driver(report: BuildReport, driver: Path) -> None:
    script = """
for kernel in (lib.programmatic, lib.programmatic_pairs):
    kernel(OnGpu(np.zeros((1, 8), np.int32)))
    print(log()[-1])
"""
    alone, pairs = run(report, script, driver, FAKE_CUDA="1 80 12000").splitlines()
    assert alone.endswith("cluster 0 programmatic 1")
    assert pairs.endswith("cluster 2 programmatic 1")


def test_deep_launches_start_early_where_blocks_are_few(report: BuildReport, driver: Path) -> None:
    script = """
for m, n in ((999, 5), (999, 6), (256, 9), (257, 9), (1024, 10), (1025, 10), (512, 20), (513, 20), (85, 21)):
    lib.programmatic_deep(OnGpu(np.zeros((m, n), np.int32)))
    print(log()[-1][-1])
"""
    said = run(report, script, driver, FAKE_CUDA="1 80 12000").split()
    assert said == [*"101010101"], "half of 10 multiprocessors, else 256 KB, and 1 MB where none is idle"


def test_cooperative_launches_say_so_to_the_driver(report: BuildReport, driver: Path) -> None:
    script = "lib.cooperative(OnGpu(np.zeros((1, 8), np.int32)))\nprint(log()[-1])"
    assert run(report, script, driver, FAKE_CUDA="1 80 12000").strip().endswith("programmatic 0 cooperative")


def test_tensor_maps_follow_the_dims(report: BuildReport, driver: Path) -> None:
    script = """
lib.mapped(OnGpu(np.zeros((3, 8), np.int32)))
lib.mapped(OnGpu(np.zeros((0, 8), np.int32)))
error = failing(lib.mapped, OnGpu(np.zeros((3, 7), np.int32)))
print("\\n".join(line for line in log() if "launch" not in line))
print(error.name, error)
"""
    *logged, error = run(report, script, driver, FAKE_CUDA="1 80 12000").splitlines()
    assert [line for line in logged if "retain" not in line] == [
        "map dtype 2 rank 2 extents 8 3 stride 32 box 16 8 swizzle 2",
        "load sm_80 mapped",
        "argument 3: map of 3",
        "argument 3: ",
    ]
    assert "TILEC_ERR_LAYOUT x: describing it for TMA failed" in error


def test_boxes_of_the_last_tile_have_the_rows_that_are_left(report: BuildReport, driver: Path) -> None:
    script = """
for rows in (3, 8, 15, 19):
    lib.mapped_rest(OnGpu(np.zeros((rows, 8), np.int32)))
print("\\n".join(line for line in log() if line.startswith("map ")))
"""
    logged = run(report, script, driver, FAKE_CUDA="1 80 12000").splitlines()
    boxes = [line.partition(" box ")[2] for line in logged]
    assert boxes == [f"16 {rows} swizzle 2" for pair in ((3, 2), (8, 4), (7, 8), (3, 2)) for rows in pair]


def test_maps_of_images_have_windows(report: BuildReport, driver: Path) -> None:
    script = """
lib.mapped_image(OnGpu(np.zeros((3, 32), np.int32)))
lib.mapped_image(OnGpu(np.zeros((3, 4), np.int32)))
print("\\n".join(line for line in log() if "launch" not in line))
"""
    logged = run(report, script, driver, FAKE_CUDA="1 80 12000").splitlines()
    assert [line for line in logged if "retain" not in line] == [
        "image map dtype 2 rank 3 extents 4 8 corners -1 -2 steps 1 2 box 4 16 swizzle 0",
        "load sm_80 mapped_image",
        "argument 3: map of 8",
        "argument 3: ",  # no pixel: the filter is wider than the line
    ]


def test_maps_of_known_sizes_get_the_address_of_the_call(report: BuildReport, driver: Path) -> None:
    script = """
kept = [OnGpu(np.zeros((m, 8), np.int32)) for m in (3, 3, 5, 3)]
for each in kept:
    lib.mapped(each)
thread = threading.Thread(target=lambda: lib.mapped(kept[0]))
thread.start(), thread.join()
print("\\n".join(line.split(" extents")[0] for line in log() if line.startswith(("map", "replace", "arg"))))
"""
    said = run(report, script, driver, FAKE_CUDA="1 80 12000").splitlines()
    new, known = "map dtype 2 rank 2", "replace map of 3"
    assert said == [
        *(new, "argument 3: map of 3"),
        *(known, "argument 3: map of 3"),
        *(new, "argument 3: map of 5"),
        *(known, "argument 3: map of 3"),
        *(new, "argument 3: map of 3"),  # another thread keeps its own
    ]


def test_a_lost_context_is_no_matter_of_layout(report: BuildReport, driver: Path) -> None:
    script = """
class Nowhere(OnGpu):
    def data_ptr(self): return 4096
lib.spoil(Nowhere(np.zeros((1, 4), np.int32)))
for kernel in (lib.mapped, lib.wide):
    error = failing(kernel, OnGpu(np.zeros((3, 8), np.int32)))
    print(error.name, error)
"""
    mapped, wide = run(report, script, driver, FAKE_CUDA="1 80 12000").splitlines()
    assert mapped.startswith("TILEC_ERR_DRIVER x: describing it for TMA failed")
    assert wide.startswith("TILEC_ERR_DRIVER")


def test_tensors_start_at_multiples_of_16_bytes(report: BuildReport, driver: Path) -> None:
    script = """
wide = np.zeros(64, np.int32)
error = failing(lib.wide, OnGpu(wide[1:5].reshape(1, 4)))
print(error.name, error)
"""
    said = run(report, script, driver, FAKE_CUDA="1 80 12000")
    assert said.startswith("TILEC_ERR_LAYOUT wide: x is at 0x")
    assert "multiples of 16 bytes" in said


def test_a_later_launch_that_fails_is_a_partial_call(report: BuildReport, driver: Path) -> None:
    script = "e = failing(lib.broken, OnGpu(np.zeros((1, 4), np.int32))); print(e.name, e)"
    said = run(report, script, driver, FAKE_CUDA="1 80 12000")
    assert said.startswith("TILEC_ERR_PARTIAL")
    assert "CUDA_ERROR_FAKE (719): a planted failure" in said


def test_workspaces_are_asked_for(report: BuildReport, driver: Path) -> None:
    script = """
import tilec.portable.loader as loader
made = []
def memory(device, stream, size):
    made.append((stream, size))
    block = np.zeros(size + 256, np.uint8)
    return block, (block.ctypes.data + 255) // 256 * 256, size
loader._cuda_memory = memory
for m, stream in ((3, 1), (2, 1), (100, 1), (1, 2)):
    lib.work(OnGpu(np.zeros((m, 5), np.int32)), stream=stream)
print(made, log()[-1])
"""
    said = run(report, script, driver, FAKE_CUDA="1 80 12000")
    assert said.startswith("[(1, 256), (1, 512), (2, 256)] launch work_1 grid 1 5 1")


#: torch as far as the loader asks it for streams and memory; a stream made of address 0 is any other one.
STAND_IN_TORCH = """
import contextlib, types
class Stream:
    def __init__(self, address): self.cuda_stream = address
class Torch(types.ModuleType):
    float32, uint8 = np.float32, np.uint8
    version = types.SimpleNamespace(hip=None)
    def __init__(self):
        super().__init__("torch")
        self.cuda, self.now, self.made = self, Stream(5), []
    def is_available(self): return True
    def is_current_stream_capturing(self): return False
    def current_stream(self, device=None): return self.now
    def default_stream(self, device): return Stream(0)
    def ExternalStream(self, address, device): return Stream(address or 77)
    @contextlib.contextmanager
    def stream(self, stream):
        self.now, before = stream, self.now
        yield
        self.now = before
    def empty(self, shape, dtype, device):
        self.made.append((self.now.cuda_stream, shape))
        room = np.zeros(256 + 4 * int(np.prod(shape)), np.uint8)
        start = -room.ctypes.data % 256
        return OnTorch(room[start : start + int(np.prod(shape)) * np.dtype(dtype).itemsize].view(dtype))
class OnTorch(OnGpu):
    is_cuda = True
sys.modules["torch"] = torch = Torch()
"""


def test_memory_of_torch_is_taken_on_the_stream_of_the_call(report: BuildReport, driver: Path) -> None:
    script = """
work, array = lib.kernels["work"], OnTorch(np.zeros((1, 5), np.int32))
for stream in (None, 0, 9):
    work(array, stream=stream)
print(torch.made, torch.now.cuda_stream)
torch.made.clear()
a = OnTorch(np.ones(8, np.float32))
for stream in (None, 0, 9, 0):
    made = lib.add(a, a, stream=stream)
    assert (made.array == 2).all()
for _ in range(2):
    lib.add(alpha=1.0, a=a, b=a, stream=9)
print(torch.made)
"""
    workspaces, outputs = run(report, STAND_IN_TORCH + script, driver, FAKE_CUDA="1 80 12000").splitlines()
    assert workspaces == "[(5, 256), (0, 256), (9, 256)] 5"
    assert outputs == "[(5, (8,)), (0, (8,)), (9, (8,)), (0, (8,)), (9, (8,)), (9, (8,))]"


def test_workspaces_need_not_stay(report: BuildReport, driver: Path) -> None:
    script = """
work, array = lib.kernels["work"], OnTorch(np.zeros((1, 5), np.int32))
work.keeps_workspace = False
for _ in range(3):
    work(array)
print(len(torch.made))
"""
    assert run(report, STAND_IN_TORCH + script, driver, FAKE_CUDA="1 80 12000") == "3\n"


def test_contexts_have_workspaces_of_their_own(report: BuildReport, driver: Path) -> None:
    script = """
import tilec.portable.loader as loader
made = []
def memory(device, stream, size):
    block = np.zeros(size + 256, np.uint8)
    made.append(size)
    return block, (block.ctypes.data + 255) // 256 * 256, size
loader._cuda_memory = memory
def work():
    lib.work(OnGpu(np.zeros((1, 5), np.int32)))
context = ctypes.c_void_p()
fake().cuCtxCreate_v2(ctypes.byref(context), 0, 0)
work()
fake().cuCtxDestroy_v2(context)
work()
work()
print(len(made))
"""
    assert run(report, script, driver, FAKE_CUDA="1 80 12000").strip() == "2"


def test_forked_children_are_refused(report: BuildReport, driver: Path) -> None:
    script = """
add()
child = os.fork()
if child == 0:
    error = failing(add)
    os._exit(0 if error.name == "TILEC_ERR_DEVICE" and "forked" in str(error) else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
add()
child = os.fork()
if child == 0:
    a = np.ones(8, np.float32)
    os._exit(0 if (lib.add(a, a) == 2).all() else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    run(report, script, driver)


def test_a_child_may_use_cuda_when_its_parent_did_not(report: BuildReport, driver: Path) -> None:
    script = """
a = np.ones(8, np.float32)
lib.add(a, a)
child = os.fork()
if child == 0:
    add()
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    run(report, script, driver)


def test_tensors_begin_anywhere_where_code_moves_elements_alone(report: BuildReport, driver: Path) -> None:
    said = run(
        report,
        """
x = OnGpu(np.arange(33, dtype=np.int32)[1:].reshape(4, 8))
lib.elements(x)
print(failing(lib.persistent, x))
""",
        driver,
        FAKE_CUDA="1 80 12090",
    )
    assert "on CUDA tensors start at multiples of 16 bytes" in said
