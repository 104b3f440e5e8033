"""Idioms of tiles on chip: how they are filled, what only passes through them."""
