"""What a build does not make again: compiled variants, machine code, the package as a whole."""
