"""Tile IR: nodes, layouts, guards, printer, parser, verifier, reference interpreter."""
