"""Files on disk: written whole or not at all, checked before use, resumed after a crash."""
