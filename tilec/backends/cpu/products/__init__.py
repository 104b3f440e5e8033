"""Matrix products on a CPU: register blocks, packed operands, the instructions that they take."""
