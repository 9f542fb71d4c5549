"""Generates manifests from the resource vocabularies, so that they always agree."""
