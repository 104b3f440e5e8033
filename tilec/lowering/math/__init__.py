"""Arithmetic on values of any lane count that every family of targets shares."""
