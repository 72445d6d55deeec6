"""Splits inside a layer: what each device computes, and what it needs from the others."""
