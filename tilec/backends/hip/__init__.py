"""AMD GPUs: the general road of `tilec.backends.cuda` with code for gfx targets."""
