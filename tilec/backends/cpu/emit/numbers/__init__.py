"""Numbers as the language means them and instructions do not: small floats, NaN, integers that wrap."""
