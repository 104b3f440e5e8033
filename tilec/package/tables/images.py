"""Device images of a library: their bytes in a section of the file, each once, under symbols for its tables.

The assembler reads the bytes from files (``.incbin``); no compiler sees them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from tilec.package.family import all_variants
from tilec.package.model import PackageSpec, VariantRecord


@dataclass(frozen=True)
class Images:
    """Those of the variants that ``is_own`` holds for, equal ones once; ``word`` is part of the names of
    symbols and files."""

    spec: PackageSpec
    family: str
    word: str
    is_own: Callable[[VariantRecord], bool]

    @cached_property
    def codes(self) -> dict[str, bytes]:
        """Bytes by digest; their order numbers them."""
        return {one.image.sha256: one.image.code for one in all_variants(self.spec) if self.is_own(one)}

    def symbol(self, number: int) -> str:
        """Where image ``number`` begins."""
        return f"{self.spec.name}__{self.word}_{number}"

    def files(self) -> dict[str, bytes]:
        """The files that the assembler reads the images from."""
        return {self._file(number): code for number, code in enumerate(self.codes.values())}

    def _file(self, number: int) -> str:
        return f"{self.word}_{number}.bin"

    def section(self, align: int = 64) -> str:
        """Assembly, as strings of C, that puts the images into the section of the family."""
        pieces = [
            rf"""
  HIDDEN({self.symbol(number)})
  "  .balign {align}\n"
  SYMBOL({self.symbol(number)}) ":\n"
  "  .incbin \"{self._file(number)}\"\n"
"""
            for number in range(len(self.codes))
        ]
        return "".join([f"  LOADED({self.family})", *pieces, "\n"])

    def declaration(self) -> str:
        """C that declares the symbols."""
        names = ", ".join(f"{self.symbol(number)}[]" for number in range(len(self.codes)))
        return f'extern __attribute__((visibility("hidden"))) const char {names};\n'
