"""What travels to machines without tilec: the loader, torch operators, timers, the runner.

Needs the standard library alone, and NumPy where a module says so.
"""
