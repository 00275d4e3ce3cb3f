"""Measurements of what this package does, beside what else could be used for it."""
