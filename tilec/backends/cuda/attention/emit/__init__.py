"""Device code of launches whose rows stay in registers."""
