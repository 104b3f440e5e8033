"""What tests of the runtimes for AMD's and Apple's GPUs share: two kernels of rows, and what scripts do with
them in a process that has a stand-in for the driver."""

from __future__ import annotations

from pathlib import Path

from tilec.build.library import build

KERNELS = Path(__file__).resolve().parents[2] / "examples" / "kernels"
MANIFEST = f"""\
edition = 1

[package]
name = "rows"

[targets]
{{targets}}

[[kernel]]
name = "scale_add"
source = "{KERNELS}/elementwise.py:scale_add"
dims = {{{{ n = "dynamic" }}}}
args = {{{{ dtype = "float16" }}}}

[[kernel]]
name = "softmax"
source = "{KERNELS}/softmax.py:softmax"
dims = {{{{ M = "dynamic", N = "%64", ldx = "%64" }}}}
fallback = "none"
config = {{{{ bN = 64 }}}}
args = {{{{ dtype = "float32" }}}}
"""
#: In front of each script: how it says what a call is refused with, and rows.
PRELUDE = """
def failing(call, *args):
    try: call(*args)
    except LaunchError as error: print(error.name, error, flush=True)
    else: raise SystemExit("the call should have failed")
x = np.random.default_rng(1).standard_normal((5, 128), dtype=np.float32)
"""
#: A process whose child has no use for the driver: where it was in use, all that needs it is refused there.
FORKED = """
softmax(x)
child = os.fork()
if child == 0:
    failing(softmax, x)
    failing(library.preload, DEVICE)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
softmax(x)
"""


def build_rows(folder: Path, targets: str) -> Path:
    """The library of both kernels for a line of ``[targets]``, built in a folder."""
    (folder / "rows.toml").write_text(MANIFEST.format(targets=targets))
    return build(folder / "rows.toml", folder / "out").report.library
