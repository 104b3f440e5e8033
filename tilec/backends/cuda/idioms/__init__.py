"""Usual ways of writing kernels, rewritten into those that strategies take: one rule a file.

Each rule keeps the meaning of a launch and serves whatever has its conditions; `order.IDIOMS` has them in the
order in which they run. A launch that no strategy takes stays as its author wrote it.
"""
