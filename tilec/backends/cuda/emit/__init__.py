"""Lowered tile IR as device TIR: one file for each kind of statement."""
