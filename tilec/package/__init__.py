"""Dispatch table, generated C and headers, link, bindings, metadata."""
