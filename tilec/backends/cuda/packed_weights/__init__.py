"""Products whose first operand is computed from packed weights on its way into registers."""
