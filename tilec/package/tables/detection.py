"""The CPU detection table of a library, written from `tilec.cpu_bits.DETECTION`."""

from __future__ import annotations

from tilec.cpu_bits import DETECTION, CpuBit, CpuidBit, Detection, HwcapBit, required_mask
from tilec.package.text.c import array, record
from tilec.package.text.escape import c_string
from tilec.systems import MACOS, WINDOWS
from tilec.targets import Host, cpu_names

_REGISTERS = ("eax", "ebx", "ecx", "edx")


def detection_source(host: Host) -> tuple[str, int]:
    """(C text, number of features) for the processors of ``host``."""
    arch = host.arch
    items = [item for item in DETECTION if item.arch == arch]
    tests = [_tests(item, host) for item in items]
    arrays = [array("cpu_test", f"cpu_tests_{index}", rows) for index, rows in enumerate(tests)]
    rows = [
        _row(item, index, len(rows)) for index, (item, rows) in enumerate(zip(items, tests, strict=False))
    ]
    tables = array("cpu_feature", "cpu_features", rows) + array("cpu_name", "cpu_names", _names(arch))
    return "".join(arrays) + tables, len(items)


def _names(arch: str) -> list[str]:
    """What names of targets are made of, and an end."""
    named = [
        record(
            text=c_string(name),
            bit=f"UINT64_C({bit.mask})",
            needs=f"UINT64_C({required_mask([bit])})",
            levels=f"UINT64_C({_mask(levels)})",
        )
        for name, bit, levels in cpu_names(arch)
    ]
    return [*named, record(text="NULL")]


def _tests(item: Detection, host: Host) -> list[str]:
    """One row per register: the bits of one CPUID or HWCAP word together; else the one question that the
    system answers."""
    is_asked = isinstance(item.tests[0], HwcapBit)  # of the system
    if is_asked and host.system is MACOS:
        return [record(name=c_string(item.sysctl))]
    if is_asked and host.system is WINDOWS:
        return [record(word=f"{item.windows}u")]
    masks: dict[tuple[int, int, int], int] = {}
    for test in item.tests:
        word = _word(test)
        masks[word] = masks.get(word, 0) | 1 << test.bit
    return [
        record(leaf=f"0x{leaf:x}u", subleaf=f"{subleaf}u", word=f"{word}u", mask=f"0x{mask:x}u")
        for (leaf, subleaf, word), mask in masks.items()
    ]


def _word(test: CpuidBit | HwcapBit) -> tuple[int, int, int]:
    if isinstance(test, CpuidBit):
        return (test.leaf, test.subleaf, _REGISTERS.index(test.register))
    return (0, 0, test.word)


def _row(item: Detection, index: int, num_tests: int) -> str:
    return record(
        bit=f"UINT64_C({item.bit.mask})",
        requires=f"UINT64_C({_mask(item.requires)})",
        xcr0=item.xcr0,
        permission=item.permission,
        tests=f"cpu_tests_{index}",
        num_tests=num_tests,
    )


def _mask(bits: tuple[CpuBit, ...]) -> int:
    return sum(bit.mask for bit in bits)
