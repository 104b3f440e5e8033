"""Layout objects of the author, and what the IR makes of them."""
