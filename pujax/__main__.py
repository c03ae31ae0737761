"""`python -m pujax COMMAND` is `pujax COMMAND`."""

import sys

from pujax.commands import main

if __name__ == "__main__":
    sys.exit(main())
