"""Layouts: which thread holds which element, and where tiles lie for them."""
