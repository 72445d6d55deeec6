"""What the child processes do. PyTorch at the top: nothing else imports these."""
