"""What threads do together: barriers, shuffles, reductions, scans, updates of one element."""
