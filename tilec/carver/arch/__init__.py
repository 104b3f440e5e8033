"""The device that kernels are for."""
