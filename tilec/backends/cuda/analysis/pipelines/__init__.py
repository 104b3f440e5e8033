"""What can run ahead of its trip, in how many stages, and when a tile is in use."""
