"""The fixtures of the library's tests, for those of the papers."""

from conftest import checksums, fruit, module_fruit, opened, outside_allowed, shared

__all__ = ["checksums", "fruit", "module_fruit", "opened", "outside_allowed", "shared"]
