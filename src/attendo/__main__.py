"""`python -m attendo` is `attendo`."""

from attendo.cli import main

main()
