"""Why a command ends early: a problem told in one line, or a signal."""


class Problem(Exception):
    """The command cannot go on; the message says why and what to do, without a traceback."""


class Terminated(BaseException):
    """SIGTERM or SIGHUP came: every open context closes on the way out."""
