"""Modules of `tilec.language` that reach above it: this folder is the second one of that package."""
