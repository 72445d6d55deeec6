"""``predict``: what many devices and nodes would give, from one device that was measured."""
