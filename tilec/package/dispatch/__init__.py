"""Which variant a call gets, as Python says it: for plans, for built libraries, for people."""
