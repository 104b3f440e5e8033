"""The kernel that is being elaborated: its session, its statements so far, places in its author's files."""
