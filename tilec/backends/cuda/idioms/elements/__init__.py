"""Idioms of loops over elements: branches, pairs, bounds, transposed reads."""
