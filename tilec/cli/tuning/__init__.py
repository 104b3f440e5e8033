"""What `tilec tune` shows: while it works, when it is done, and of schedules."""
