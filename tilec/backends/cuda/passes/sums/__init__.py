"""Sums that iterations share: reductions, scans, updates of one element, totals."""
