"""Questions about sums over devices."""
