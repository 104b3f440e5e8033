"""Thread-level code on a CPU, where one block is one task: loops over threads, split where threads meet."""
