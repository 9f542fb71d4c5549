"""Where admission meets sockets, clocks and the cluster."""
