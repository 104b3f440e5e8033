"""From a call's arguments to what the kernel is compiled for and is called with."""
