"""Sums in tensor memory: products of tcgen05."""
