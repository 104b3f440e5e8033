"""Rows that the blocks of a cluster share: which axes are columns, a launch of parts of them."""
