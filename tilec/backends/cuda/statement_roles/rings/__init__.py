"""Rings: which tiles have one, how many stages, what shared memory leaves room for."""
