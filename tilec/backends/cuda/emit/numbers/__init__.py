"""Integer arithmetic as the device has it: quotients, small and wide types."""
