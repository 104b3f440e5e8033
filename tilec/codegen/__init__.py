"""What code generation shares: images, ELF objects, the C compiler, failures."""
