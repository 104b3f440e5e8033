"""``tilec.tileop``: names of options of tile operations."""

from tilec.packages import find_aliases

find_aliases(__name__)
