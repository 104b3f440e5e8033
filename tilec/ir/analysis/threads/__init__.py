"""Threads of a block: where they part ways, wait for each other, and what lanes hold."""
