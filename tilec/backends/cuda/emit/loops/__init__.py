"""Loops over elements as code of one thread: vectors, words made of neighbours, rows that begin anywhere."""
