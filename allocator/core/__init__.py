"""Deciding: values in, values out."""
