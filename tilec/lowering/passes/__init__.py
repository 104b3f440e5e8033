"""Passes that every family of targets shares: one pass a file."""
