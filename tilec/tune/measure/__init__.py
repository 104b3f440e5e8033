"""Compile ahead, measure in slots: executors, the order of configs, one problem at a time."""
