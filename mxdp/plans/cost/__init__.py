"""How long a plan should take."""
