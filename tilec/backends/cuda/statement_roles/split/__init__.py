"""Who loads and who computes: a launch as the programs of its roles."""
