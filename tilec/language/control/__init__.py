"""Loops, branches and names."""
