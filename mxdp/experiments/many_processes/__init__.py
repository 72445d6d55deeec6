"""Questions about training in several processes."""
