"""Device code of a product whose warps have roles."""
