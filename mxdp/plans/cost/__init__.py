"""How long a plan should take: predictions made before anything is measured."""
