"""Trips and iterations of loops: where they can be cut, which come first."""
