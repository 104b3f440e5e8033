"""From TIR to machine code of CPU targets: passes over TIR, then LLVM."""
