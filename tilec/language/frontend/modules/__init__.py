"""The author's modules: found, run, and what their code may do to the process meanwhile."""
