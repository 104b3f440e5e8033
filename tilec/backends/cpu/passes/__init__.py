"""Passes of CPU targets: one pass a file."""
