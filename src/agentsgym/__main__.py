"""`python -m agentsgym`."""

from agentsgym.cli import main

if __name__ == "__main__":
    main()
