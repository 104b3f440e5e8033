"""The T namespace and the frontends: they build tile IR, nothing else."""
