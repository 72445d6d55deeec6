"""Sums over devices: who sends which chunk to whom, and each device's copies and sums."""
