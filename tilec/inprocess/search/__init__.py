"""Searches among configs in process: over calls, as a decorator, and what is kept of them."""
