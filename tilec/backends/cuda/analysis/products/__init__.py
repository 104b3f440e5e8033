"""Which products an instruction takes, and what it wants of operands."""
