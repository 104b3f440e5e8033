"""`python -m tilec` is `tilec`, where its folder is not on the path."""

from tilec.cli.main import main

main()
