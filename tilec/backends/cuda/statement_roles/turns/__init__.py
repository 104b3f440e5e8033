"""Two warpgroups that share the columns of a result and take turns."""
