"""From a product with roles to its ring, tensor copies and instructions: one pass a file."""
