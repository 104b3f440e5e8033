"""Loops over elements: what an iteration holds, vectors, stores that turn what a thread has."""
