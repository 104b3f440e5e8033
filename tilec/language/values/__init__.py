"""Values and what they are computed with: dtypes, expressions, vectors, and the elaboration under way."""
