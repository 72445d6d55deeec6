"""What the child processes do. MXNet at the top: nothing else imports these."""
