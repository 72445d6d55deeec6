"""Collectives as data: who sends which chunk to whom, and the copies and sums of each device."""
