"""From device TIR to Metal source, which travels in the library and is compiled where it runs."""
