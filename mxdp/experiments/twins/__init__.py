"""The same questions in PyTorch, for GPUs that MXNet's wheels have no code for. Nothing here loads MXNet."""
