"""Device code that strategies share: the frame of a kernel, loads, barriers, epilogues."""
