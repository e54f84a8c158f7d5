"""Lets ``python -m comfy_env.cli`` be the command where the script is not on PATH."""

import sys

from comfy_env.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
