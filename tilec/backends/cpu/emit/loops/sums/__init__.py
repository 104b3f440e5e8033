"""Loops that add up: partial results in registers, chains, scans, several sums at a time."""
