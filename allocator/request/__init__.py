"""What a pod asks for."""
