"""Where the allocator meets the cluster."""
