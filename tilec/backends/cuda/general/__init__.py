"""The road of launches that no strategy takes: bulk loads and products in the background, by statement."""
