"""Memory as the author sees it: allocations, elements, slices, views, vectors."""
