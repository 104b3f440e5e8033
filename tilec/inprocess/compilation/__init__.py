"""From a kernel that is wanted to one in the cache: its key, its library and card, many at once."""
