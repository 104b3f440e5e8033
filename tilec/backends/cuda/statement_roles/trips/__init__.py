"""Trips of consumers: which statements change places so that products stay under way."""
