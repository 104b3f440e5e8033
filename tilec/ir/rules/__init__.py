"""The rules that tile IR keeps between passes."""
