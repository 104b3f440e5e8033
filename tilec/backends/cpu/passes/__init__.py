"""Passes of CPU targets: one pass a file; `order` says when each runs.

`products` are about products and their operands, `few_bits` about products of few rows with stored numbers
of few bits, `loops` about loops over elements and their vectors, `prefetch` about what is asked for early.
"""
