"""``tilec.tileop``: names of options of tile operations."""
