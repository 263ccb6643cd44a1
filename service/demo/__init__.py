"""The demo: a simulated fleet, real workers, and an account of every snapshot."""

from service.demo.run import Plan, run_demo

__all__ = ["Plan", "run_demo"]
