"""Writes the manifests that follow from the vocabularies, so that they cannot drift apart."""
