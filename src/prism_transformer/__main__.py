"""`python -m prism_transformer`, and `torchrun -m prism_transformer train …`."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
