"""CUDA C++ from device TIR, and the compilers that make images of it."""
