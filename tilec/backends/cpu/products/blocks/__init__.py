"""Register blocks of a product, and the loops around them."""
