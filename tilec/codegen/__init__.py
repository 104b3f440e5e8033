"""From TIR to machine code: images per variant, and the C toolchain."""
