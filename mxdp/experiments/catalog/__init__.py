"""One file, one question."""
