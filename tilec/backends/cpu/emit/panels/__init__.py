"""Operands of products in the form that microkernels read."""
