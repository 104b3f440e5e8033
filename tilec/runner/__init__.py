"""Measuring candidates: a process for each device that loads, checks and times them.

Needs the standard library, `tilec.loader` and the timers of `tilec.bench` alone: `tilec tune --export` takes
this folder along as it is.
"""
