"""The author's function as a rewritten twin, and what that one calls when it runs."""
