"""Blocks of a grid and the threads of a block, as numbers."""
