"""Measuring: how long calls take (`timing`, `graphs`), what a machine can do (`ceilings`), what a kernel has
to do (`work`), and the three together for a built library (`run`)."""
