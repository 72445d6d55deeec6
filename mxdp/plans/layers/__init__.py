"""What a split inside a layer needs of the neighbours."""
