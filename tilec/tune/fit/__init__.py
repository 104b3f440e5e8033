"""Costs of schedules from their times at many shapes, and the file that they go to."""
