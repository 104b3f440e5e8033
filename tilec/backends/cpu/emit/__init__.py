"""Lowered tile IR as TIR of a CPU: one file for each kind of statement."""
