"""Who calls: how the API server is told from anybody else who reaches our port."""
