"""Boxes of tensors: what TMA brings, stores and adds."""
