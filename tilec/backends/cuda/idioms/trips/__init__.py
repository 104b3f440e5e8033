"""Idioms of loops: what stands around or in front of the trips that load tiles and multiply them."""
