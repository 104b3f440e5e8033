"""Loops over elements: which run as one, what they hold, which axis has the lanes."""
