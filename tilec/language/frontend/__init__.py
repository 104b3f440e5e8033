"""From the author's function to a tile IR kernel: capture, rewriting, elaboration."""
