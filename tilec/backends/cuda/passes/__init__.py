"""Passes of CUDA targets: one pass a file, and their order."""
