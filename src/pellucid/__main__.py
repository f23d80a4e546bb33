"""`python -m pellucid` is the command line."""

from pellucid.cli import main

main()
