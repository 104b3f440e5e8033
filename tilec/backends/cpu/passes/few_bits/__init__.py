"""Products of few rows with weights of few bits, which are read as they are stored."""
