"""What an emulated device holds: values of lanes, registers, memories, and who touched them when."""
