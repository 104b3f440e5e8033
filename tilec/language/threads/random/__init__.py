"""Streams of random numbers, as curand has them: Philox4x32-10 and XORWOW."""
