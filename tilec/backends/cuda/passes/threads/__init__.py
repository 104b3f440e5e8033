"""Statements of threads: what each of them does by itself, names that it has, barriers of the author."""
