"""What the experiments' child processes share. Loads MXNet: only `work` imports it."""
