"""Operands of wgmma: made by threads, turned, joined."""
