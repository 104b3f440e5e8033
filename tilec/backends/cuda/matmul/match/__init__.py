"""Which launches are products: their loops, operands that are boxes or gathers, factors and epilogues."""
