"""`agentsgym` under `accelerate launch`, where FSDP2 shards models also on a CPU."""

from agentsgym.cli import main
from training.with_servers import sharding

if __name__ == "__main__":
    with sharding({}):
        main()
