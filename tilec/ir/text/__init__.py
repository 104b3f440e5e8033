"""Tile IR as text: printer and parser."""
