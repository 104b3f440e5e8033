"""Loops that become several: by ranges, rows, remainders, or versions for what is known when code runs."""
