"""The AMD GPUs at hand: what HIP says of them, and the target of the first. Loads nothing but libamdhip64."""

from __future__ import annotations

from functools import lru_cache

from tilec.backends.hip.chips import CHIPS
from tilec.errors import EnvironmentError_
from tilec.portable.devices.hip import HipDevice
from tilec.portable.loader import LaunchError, hip_driver
from tilec.targets import Target, parse_target


@lru_cache(maxsize=1)
def hip_devices() -> int:
    """How many there are; 0 without ROCm."""
    try:
        return hip_driver().count
    except LaunchError:
        return 0


def device_words() -> tuple[str, ...]:
    """Every device with its processor and HIP: "AMD Instinct MI300X (gfx942), HIP 6.4"."""
    facts = [HipDevice(number).facts() for number in range(hip_devices())]
    return tuple("{name} ({arch}), {driver}".format(**each) for each in facts)


@lru_cache(maxsize=1)
def target_here() -> Target:
    """The processor of device 0. Raises EnvironmentError_ without a device, and for an unknown one."""
    if not hip_devices():
        remedy = 'name the processor, "hip -mcpu=gfx942", or compile for cpu'
        raise EnvironmentError_("target hip needs an AMD GPU, and this machine has none", remedy=remedy)
    arch = HipDevice().facts()["arch"]
    if arch not in CHIPS:
        what = f"the AMD GPU is a {arch}, tilec compiles for {', '.join(CHIPS)}"
        raise EnvironmentError_(what, remedy="compile for cpu")
    return parse_target(arch)
