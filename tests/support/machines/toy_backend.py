"""A family of targets for tests: its machine code is the text of tile IR, its driver an interpreter of that.

All that a family needs is in this file: facts, the way to its code, what a package holds of it, and C for the
runtime, which hands the code of a variant to a function whose address is in TOY_DRIVER. `toy_device` has that
function, and what verify, bench and tune want of a device."""

from __future__ import annotations

from toy_device import ToyDevice

from tilec.backends.base import Backend
from tilec.backends.ceilings import Ceilings
from tilec.backends.limits import Limits
from tilec.codegen.image import LaunchCode, image_with
from tilec.families import forget, register
from tilec.ir.text.printer import format_kernel
from tilec.lowering.lowered import LoweredKernel, LoweredLaunch
from tilec.lowering.passes.expand_copies import ExpandCopies
from tilec.package.family import family_of_variant
from tilec.package.text.escape import c_string
from tilec.targets import Target

RUNTIME = """
#include <stdlib.h>
typedef int (*toy_driver)(const char* code, const tilec_value* params, const int64_t* dims);
static tilec_status toy_archs(int32_t device, const arch_list** out) {
  static arch_list list;
  list = (arch_list){.device_type = kDLExtDev};
  if (device != 0) return fail(TILEC_ERR_DEVICE, "there is one toy, not number %d", device);
  for (uint32_t i = 0; i < this_library.num_archs; i++)
    if (this_library.archs[i].device_type == kDLExtDev) list.archs[list.count++] = (uint8_t)i;
  *out = &list;
  return TILEC_OK;
}
static int64_t toy_units(const tilec_exec* exec) { return exec ? 1 : 0; }
static tilec_status toy_preload(const kernel_record* only, int32_t device) {
  return only || device == 0 ? TILEC_OK : TILEC_ERR_DEVICE;
}
static tilec_status toy_run(const kernel_record* kernel, const variant_record* variant, const arch_list* archs,
    const tilec_exec* exec, const tilec_value* params, const int64_t* dims) {
  const char* driver = getenv("TOY_DRIVER");
  if (driver && archs->count && exec && ((toy_driver)strtoull(driver, NULL, 10))(variant->code, params, dims) == 0)
    return TILEC_OK;
  return fail(TILEC_ERR_DRIVER, "%s: the toy broke", kernel->info.name);
}
static const device_family toy_family = {
  .title = "toys", .word = "toy", .device_type = kDLExtDev, .memory_align = 64, .tensor_align = 8,
  .archs = toy_archs, .units = toy_units, .preload = toy_preload, .run = toy_run};
"""  # noqa: E501


class ToyBackend(Backend):
    """One target, which runs everything."""

    name = device = "toy"
    title, word, example = "toys", "toy", 'toy = ["toy"]'
    has_entries, device_type, runtime = False, "kDLExtDev", RUNTIME
    late_stages = {"source": "source"}  # noqa: RUF012
    identity, roads = "source", ()

    def __enter__(self):
        register(self)
        return self

    def __exit__(self, *_):
        forget(self)

    def names(self):
        return ("toy",)

    def parse(self, name, features, place):
        return Target(name, "toy", "toy", name, (), 0, 0, False, "", "", (), (), (0, 0, 0))

    def may_run(self, code, device):
        return True

    def codes(self, spec, kernel, prefix, texts):
        own = {n: one for n, one in enumerate(kernel.variants) if family_of_variant(one) is self}
        codes = {n: c_string(one.image.code.decode()) for n, one in own.items()}
        return "".join(f"static char {prefix}_toy_{n}[] = {code};\n" for n, code in codes.items())

    def code(self, kernel, prefix, number):
        return f"{prefix}_toy_{number}"

    def passes(self, target):
        return (ExpandCopies(),)

    def lower_kernel(self, kernel, target):
        return LoweredKernel(kernel.name, (LoweredLaunch(kernel, ("1",), (1, 1, 1)),))

    def generator(self):
        return self

    def source(self, lowered, target, symbol_prefix):
        return format_kernel(lowered.launches[0].func)

    def compile_kernel(self, lowered, target, symbol_prefix):
        code = self.source(lowered, target, symbol_prefix).encode()
        launches = (LaunchCode(f"{symbol_prefix}_0", ("1",), (1, 1, 1)),)
        return image_with(code, lowered, target, launches)

    def source_suffix(self, text):
        return ".tile"

    def device_at(self, number):
        return ToyDevice(number)

    def runs_on(self, device, target):
        return device["name"] == "toy"

    def limits(self, target, device, threads):
        return Limits(1, {"": 1e9}, 1e9, 1e9, 1e-3, 1e-3)

    def ceilings(self, device, threads):
        return Ceilings("toy", {"float32": 1e9}, 1e9)

    def cache_bytes(self):
        return 0
