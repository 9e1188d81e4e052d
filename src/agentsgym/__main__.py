"""`python -m agentsgym`."""

import os
import sys

if __name__ == "__main__":
    if not sys.flags.safe_path and sys.path[:1] in ([""], [os.getcwd()]):
        del sys.path[0]  # what lies in the working directory is no module of ours
    from agentsgym.cli import main

    main()
