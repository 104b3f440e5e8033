"""Families of targets: each folder has the passes, the emission and the code generator of one."""
