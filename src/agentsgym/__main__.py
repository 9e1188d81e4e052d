"""`python -m agentsgym`."""

import os
import sys

if __name__ == "__main__":
    if not sys.flags.safe_path and sys.path[:1] in ([""], [os.getcwd()]):
        del sys.path[0]  # modules in the working directory are not ours
    from agentsgym.cli import main

    main()
