"""What is known of a kernel from its tile IR: ranges, groups of threads, renaming."""
