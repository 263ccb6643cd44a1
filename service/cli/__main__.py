"""``python -m service.cli`` is ``secateur``."""

import sys

from service.cli import main

if __name__ == "__main__":  # the processes of `reprocess` import this module too
    sys.exit(main())
