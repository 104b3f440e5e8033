"""A folder for the kernel hub of Hugging Face: code, layers of models, the card for people."""
