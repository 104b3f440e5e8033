"""Scalar functions of the language: integers, floats, bits, pairs."""
