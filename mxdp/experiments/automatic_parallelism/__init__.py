"""Questions about what MXNet's engine runs side by side."""
