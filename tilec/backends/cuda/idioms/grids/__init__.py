"""Idioms of grids: blocks that walk over tiles, flat numbers of blocks, blocks without work."""
