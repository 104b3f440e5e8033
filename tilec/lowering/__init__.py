"""Passes from tile IR to TIR: one pass a file, one literal tuple of passes per target."""
