"""Products: the register block of each, operands, epilogues, and what need not be computed."""
