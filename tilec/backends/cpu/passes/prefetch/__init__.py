"""What is asked for before it is read or written, so that a core does not wait for memory."""
