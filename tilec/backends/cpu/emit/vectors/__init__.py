"""Elements in the lanes of a vector: where they lie, how they are read and written."""
