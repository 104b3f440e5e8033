"""Which instructions multiply what, and how they are called."""
