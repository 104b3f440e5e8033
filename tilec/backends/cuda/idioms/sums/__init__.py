"""Idioms of a product's sums: what they start from, what they are multiplied by or masked with."""
