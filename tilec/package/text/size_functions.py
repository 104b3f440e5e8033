"""C functions that evaluate integer texts, such as the grid of a launch; equal lists of texts share one.

    ("(M + 127) // 128", "1", "1")    ->    bool texts_0(params, dims, out) { out[0] = ...; }

False is returned where a value leaves 64 bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilec.package.text.c_sizes import to_c


class TextFunctions:
    """Collects lists of texts and names the C function that evaluates each list."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def name(self, texts: Sequence[str], names: Mapping[str, str]) -> str:
        """The function that writes the values of ``texts`` into ``out``; NULL for no texts. ``names`` maps
        the names in the texts to C expressions over ``params`` and ``dims``."""
        if not texts:
            return "NULL"
        body = "".join(f"  out[{index}] = {to_c(text, names)};\n" for index, text in enumerate(texts))
        return self._names.setdefault(body, f"texts_{len(self._names)}")

    def source(self) -> str:
        """All functions, in the order in which they were named."""
        return "".join(
            f"static bool {name}(const tilec_value* params, const int64_t* dims, int64_t* out) {{\n"
            f"  bool ok = true;\n  (void)params;\n  (void)dims;\n{body}  return ok;\n}}\n"
            for body, name in self._names.items()
        )
