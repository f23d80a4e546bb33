"""Files that tests write."""


def written(path, content):
    """Write a file of some text or bytes, as they are; return its path."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path
