"""What schedules of a kernel cost, and which few are worth having: the one model of it that there is."""
