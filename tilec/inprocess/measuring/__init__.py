"""Times of kernels in process, beside a reference and on inputs that are made for it."""
