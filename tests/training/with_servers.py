"""Two processes that learn with the weights on vLLM servers: whole models, and models of FSDP2.

Accelerate shards no model on a CPU; `sharding` lets it do so. Run as a script under
`accelerate launch` with the folder to write to.
"""

import copy
import os
import sys
from contextlib import contextmanager, nullcontext
from pathlib import Path

import torch
from safetensors.torch import load_file

from agentsgym.generation import EmbeddedEngine
from agentsgym.generation.vllm import VLLMEngine
from agentsgym.training.ranks import Ranks
from completions_server import CompletionsServer
from training import learner

FSDP = {
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    "FSDP_RESHARD_AFTER_FORWARD": "true",
    "FSDP_CPU_RAM_EFFICIENT_LOADING": "false",
}


@contextmanager
def sharding(settings=FSDP):
    """Models that are prepared in here are sharded by FSDP2, also without a GPU, if these variables
    or the trainer's own settings say so."""
    from accelerate.state import AcceleratorState
    from accelerate.utils import DistributedType

    before = AcceleratorState.__init__

    def patched(self, *args, fsdp_plugin=None, **options):
        before(self, *args, fsdp_plugin=fsdp_plugin, **options)
        self.fsdp_plugin = fsdp_plugin or getattr(self, "fsdp_plugin", None)
        if self.fsdp_plugin is not None:
            self.distributed_type = DistributedType.FSDP

    AcceleratorState.__init__ = patched
    os.environ.update(settings)
    try:
        yield
    finally:
        AcceleratorState.__init__ = before
        for name in settings:
            del os.environ[name]
        AcceleratorState._reset_state(reset_partial_state=False)


class Servers:
    """Two servers in the first process, which all processes know."""

    def __init__(self, tokenizer, ranks):
        self.tokenizer = tokenizer
        self.started = []
        if ranks.rank == 0:
            for _ in range(2):
                engine = EmbeddedEngine(learner.tiny_model(tokenizer), tokenizer)
                self.started.append(CompletionsServer(engine, follow=True))
        self.urls = ranks.gather([[server.url for server in self.started]])[0]

    def engine(self):
        return VLLMEngine(self.urls, self.tokenizer)

    def close(self):
        for server in self.started:
            server.close()


class Alone:
    """What `Ranks` reads of an accelerator, before there is one."""

    process_index = int(os.environ.get("RANK", "0"))
    num_processes = int(os.environ.get("WORLD_SIZE", "1"))


def trained(tokenizer, out, peft_config=None):
    """Two optimizer steps with servers; what was learned, and what was written last."""
    servers = Servers(tokenizer, Ranks(Alone))
    engine = servers.engine()
    given = {"engine": engine, "peft_config": peft_config}
    trainer, gradients = learner.train(tokenizer, out, 2, given=given)
    trainer.train()
    trainer.push_weights(trainer.state.global_step)
    newest = max((out / "sync").iterdir(), key=lambda path: int(path.name.rpartition("-v")[2]))
    [file] = newest.glob("*.safetensors")
    model = trainer.accelerator.unwrap_model(trainer.model)
    results = {
        "kinds": {type(parameter).__name__ for parameter in model.parameters()},
        "gradients": gradients.seen,
        "weights": learner.weights(trainer),
        "named": {n: learner.whole(p.detach()).clone() for n, p in model.named_parameters()},
        "written": load_file(file),
        "played": learner.played(trainer, "train"),
        "logs": [entry for entry in trainer.state.log_history if "loss" in entry],
        "full disk": full_disk(trainer),
    }
    trainer.ranks.gather([0])  # servers end when nobody asks them any more
    engine.close()
    servers.close()
    return results


def full_disk(trainer):
    """How each process ends if the first one cannot write."""

    def full(*_, **__):
        raise OSError("No space left on device")

    kind = type(trainer.accelerator.unwrap_model(trainer.model))
    before, kind.save_pretrained = kind.save_pretrained, full
    trainer.sync.forget()
    try:
        trainer.push_weights(trainer.state.global_step)
    except Exception as error:
        return type(error).__name__, str(error)
    finally:
        kind.save_pretrained = before
    return "nothing"


def everything(tokenizer, out):
    """All that is compared, as a dict that torch.save takes."""
    from peft import LoraConfig

    adapter = LoraConfig(r=3, target_modules=["q_proj", "down_proj"], init_lora_weights=False)
    result = {}
    for name, shards in (("whole", nullcontext), ("sharded", sharding)):
        with shards():
            result[name] = trained(tokenizer, out / name)
            result[f"{name} adapter"] = trained(
                tokenizer, out / f"{name}-adapter", copy.deepcopy(adapter)
            )
    return result


def main():
    from accelerate import PartialState

    from helpers import CHATML, build_tokenizer

    torch.set_num_threads(1)
    PartialState(cpu=True)
    out = Path(sys.argv[1])
    result = everything(build_tokenizer(CHATML), out)
    torch.save(result, out / f"rank{Alone.process_index}.pt")


if __name__ == "__main__":
    main()
