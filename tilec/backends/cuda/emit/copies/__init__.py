"""Copies beside what threads compute: cp.async, gathers and their look-ups."""
