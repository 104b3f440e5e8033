"""Apple's GPUs through Metal: the general road of `tilec.backends.cuda`, written in Metal's language."""
