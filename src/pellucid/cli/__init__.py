"""The command line: its commands, what they read and what they write."""
