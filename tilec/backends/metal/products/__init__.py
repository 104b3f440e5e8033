"""Products by simdgroup matrices."""
