"""What CUDA passes ask about statements: layouts, owners, lifetimes, operands."""
