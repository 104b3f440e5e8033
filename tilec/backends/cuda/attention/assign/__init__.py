"""The parts of a launch whose rows stay in registers: loads, products, stores, and where tiles lie."""
