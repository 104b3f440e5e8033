"""Answers about a plan: which variant serves a call, who serves a model, which variants a library lacks."""
