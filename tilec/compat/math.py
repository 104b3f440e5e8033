"""``tilec.math``: arithmetic on Python integers."""

from tilec.language.values.functions.integers import ceildiv as cdiv
from tilec.language.values.functions.integers import next_power_of_2

__all__ = ["cdiv", "next_power_of_2"]
