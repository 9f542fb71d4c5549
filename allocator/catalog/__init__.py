"""Data that a contributor adds: boards and resource vocabularies."""
