"""Views: from what was read of a cluster to rows, drawings and sentences."""
