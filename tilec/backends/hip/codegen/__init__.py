"""From device TIR to code objects: C++ as TVM writes it, with AMD's meaning of its names."""
