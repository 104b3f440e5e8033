"""Operations on tiles: copies, products, reductions, atomics."""
