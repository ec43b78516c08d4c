"""`python -m prosa` is the same program as `prosa`."""

from prosa.cli.app import main

main()
