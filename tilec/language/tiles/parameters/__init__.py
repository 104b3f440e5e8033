"""What parameters of a kernel are: tensors, scalars, dims, raw addresses."""
