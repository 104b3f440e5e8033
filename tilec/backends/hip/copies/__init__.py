"""Copies of AMD GPUs from global to shared memory that go through no register."""
