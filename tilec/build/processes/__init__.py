"""Compile processes: a pool of them, those that die, hang, or outlive whom they compile for."""
