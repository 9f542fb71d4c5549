"""Admission of pods and bindings: review, decision, patch, record."""
