"""Service: everything that touches the world; it reads snapshots, runs the pipeline and settles results."""
