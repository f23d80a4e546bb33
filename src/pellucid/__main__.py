"""`python -m pellucid` is the command line."""

from pellucid.cli.app import main

main()
