"""Parallel as loops: which axis has the lanes, where ranges split so that no bound is left inside, whole
vectors and what follows them, what lanes accumulate."""
