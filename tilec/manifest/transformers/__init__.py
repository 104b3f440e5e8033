"""Transformer models by their configuration files: layers, steps, the calls that they make."""
