"""Service: everything that touches the world; it reads snapshots, runs the pipeline and settles results."""

import pipeline as pipeline  # so that every strategy and every format is known to whoever reads a policy
