"""What people read: pure views of a cluster, and the kubectl plugin that prints them."""
