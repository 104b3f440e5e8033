"""Which thread holds which element of a fragment, and what statements ask of that."""
