"""Steady: one scan forward that cuts only where the size forces it, so that what follows never moves a decision."""

from pipeline.steady.scan import make_plan

__all__ = ["make_plan"]
