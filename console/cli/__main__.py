"""`python -m console.cli` is `roost`."""

from console.cli.main import main

main()
