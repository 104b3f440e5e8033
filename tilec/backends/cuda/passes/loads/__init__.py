"""Loads: which copies run ahead of the statements that use them, and who makes them."""
