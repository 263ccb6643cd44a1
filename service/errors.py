"""Errors that more than one part of the service knows."""


class StartRefused(Exception):
    """A worker cannot start until somebody mends something; the message says in one line what."""
