"""From variants of a manifest to verified kernels, and what is wrong with a config before any is lowered."""
