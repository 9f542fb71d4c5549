"""What is applied to a cluster: kustomize base, components and overlays, and their generator."""
