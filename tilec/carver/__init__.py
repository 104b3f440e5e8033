"""Questions about the machine that kernel files ask while they are built."""
