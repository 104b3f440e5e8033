"""Passes from tile IR to device TIR for CUDA targets."""
