"""Measuring candidates: a process for each device that loads, checks and times them.

Needs the standard library and `tilec.portable` alone: `tilec tune --export` takes this folder along as it is.
"""
