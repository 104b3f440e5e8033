"""Which elements statements touch: vectors, banks, and what two of them share."""
