"""Tables for families whose drivers load an image as a whole, such as HIP and Metal.

Of each variant the runtime gets a ``loaded_code``: its launches by symbol, and the image that has them, with
a place for what the driver makes of both on each device (`runtime_c/src/devices/loaded.h`).
"""

from __future__ import annotations

from dataclasses import dataclass

from tilec.codegen.image import PersistentLaunch
from tilec.package.model import KernelRecord, PackageSpec, VariantRecord
from tilec.package.tables.images import Images
from tilec.package.text.c import array, record
from tilec.package.text.escape import c_string
from tilec.targets import parse_target


@dataclass(frozen=True)
class LoadedCode:
    """The code of one ``family``, whose launches are `PersistentLaunch`es: arrays of the records in
    ``runtime_c/src/devices/loaded.h``, of which ``<family>_records.h`` says for how many devices."""

    family: str

    @property
    def _devices(self) -> str:
        return f"MAX_{self.family.upper()}_DEVICES"

    def is_own(self, variant: VariantRecord) -> bool:
        """Whether a variant is for the family."""
        return parse_target(variant.target).family == self.family

    def images(self, spec: PackageSpec) -> Images:
        """The images of all variants."""
        return Images(spec, self.family, f"{self.family}_image", self.is_own)

    def declarations(self, spec: PackageSpec) -> str:
        """C that declares the images, and places for what becomes of each."""
        images = self.images(spec)
        count, made = len(images.codes), f"{self.family}_made"
        rows = [record(data=images.symbol(number), made=f"{made}[{number}]") for number in range(count)]
        return "".join(
            [
                f"/* ---- images: {self.family} ---- */\n",
                f'#include "devices/loaded.h"\n#include "devices/{self.family}/{self.family}_records.h"\n',
                images.declaration(),
                f"static void* {made}[{count}][{self._devices}];\n",
                array("loaded_image", f"{self.family}_images", rows),
                "\n",
            ]
        )

    def codes(self, spec: PackageSpec, kernel: KernelRecord, prefix: str) -> str:
        """The array ``<prefix>_<family>``, one loaded_code per variant, and what it points to."""
        images, own = list(self.images(spec).codes), f"{prefix}_{self.family}"
        rows = [
            record(
                made=f"{own}_made[{number}]",
                info=f"&{prefix}_launch_infos[{info}]",
                blocks_per_unit=gpu.blocks_per_unit,
                symbol=c_string(symbol),
            )
            for number, (info, symbol, gpu) in enumerate(self._launches(kernel))
        ]
        code_rows, first = [], 0
        for variant in filter(self.is_own, kernel.variants):
            image = f"&{self.family}_images[{images.index(variant.image.sha256)}]"
            code_rows.append(record(launches=f"{own}_launches + {first}", image=image))
            first += len(variant.image.launches)
        return "".join(
            [
                f"static void* {own}_made[{len(rows)}][{self._devices}];\n",
                array("loaded_launch", f"{own}_launches", rows),
                array("loaded_code", own, code_rows, const=False),
            ]
        )

    def code(self, kernel: KernelRecord, prefix: str, number: int) -> str:
        """A pointer to the loaded_code of variant ``number``."""
        return f"&{prefix}_{self.family}[{sum(map(self.is_own, kernel.variants[:number]))}]"

    def _launches(self, kernel: KernelRecord) -> list[tuple[int, str, PersistentLaunch]]:
        """Those of its variants: the place among all launches, the symbol, what it takes."""
        owners = [(variant, launch) for variant in kernel.variants for launch in variant.image.launches]
        return [
            (place, launch.symbol, launch.gpu)
            for place, (variant, launch) in enumerate(owners)
            if self.is_own(variant) and isinstance(launch.gpu, PersistentLaunch)
        ]
