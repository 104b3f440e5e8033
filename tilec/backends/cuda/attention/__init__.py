"""Launches whose rows stay in registers through several products: roles, rings and waits from dependences."""
