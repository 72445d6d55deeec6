"""Questions about training on several devices."""
