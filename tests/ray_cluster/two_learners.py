"""Two processes that learn from what actors on Ray play, each with actors of its own.

Run as a script under `accelerate launch` with the folder to write to.
"""

import os
import sys
from pathlib import Path

from training import learner

SERVERS = "SERVERS_OF_THE_TEST"


def trained(tokenizer, out, processes, **options):
    """Two optimizer steps; what was played and learned."""
    urls = os.environ[SERVERS].split()
    trainer, gradients = learner.train(tokenizer, out, processes, engine={"urls": urls}, **options)
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    trainer.collector.engine.close()
    return {
        "gradients": gradients.seen,
        "played": learner.played(trainer, "train"),
        "versions": {r.policy_version for _, r in trainer.played if not r.failed},
        "alive": [entry.get("ray/alive") for entry in logged],
    }


def main():
    import torch
    from accelerate import PartialState

    from helpers import CHATML, build_tokenizer

    torch.set_num_threads(1)
    PartialState(cpu=True)
    out = Path(sys.argv[1])
    workers = {"ray": {"workers": 2, "resources": {"num_cpus": 0.5}}}
    result = trained(build_tokenizer(CHATML), out / "run", 2, **workers)
    torch.save(result, out / f"rank{os.environ['RANK']}.pt")


if __name__ == "__main__":
    main()
