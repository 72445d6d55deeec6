"""Data-parallel steps on machines that are not here: many devices in many nodes, from one device that was measured."""
