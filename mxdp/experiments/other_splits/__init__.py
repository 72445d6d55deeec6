"""Questions about pipelines, layers cut in pieces, and tiles."""
