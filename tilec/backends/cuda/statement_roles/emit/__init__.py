"""Device code of what this road adds to the tile IR."""
