"""Modules and names of 0.1 where they were: an import finds the new one and warns.

The entries of these tables go with version 0.3.
"""

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MOVED = {
    "cli.bars": "cli.progress",
    "cli.evaluation": "cli.evaluate",
    "cli.listing": "cli.envs",
    "cli.training": "cli.train",
    "credit.episodic": "credit.estimators.episodic",
    "credit.gigpo": "credit.estimators.gigpo",
    "credit.options": "credit.estimator",
    "credit.step_return": "credit.estimators.step_return",
    "credit.trial": "credit.estimators.trial",
    "envs.answers": "rollout.answers",
    "envs.episode": "rollout.episode",
    "envs.episode_record": "rollout.complete_episode",
    "envs.faults": "rollout.failures",
    "envs.placement": "types.reward_placement",
    "envs.random_agent": "agents.random",
    "envs.rows": "envs.dataset",
    "envs.seat": "rollout.session_view",
    "envs.session": "rollout.session",
    "envs.shipped": "envs.builtin",
    "envs.textarena.repairs": "envs.textarena.patches",
    "envs.trial": "rollout.trial",
    "envs.twenty_questions.normalise": "envs.twenty_questions.normalize",
    "generation.attention": "generation.embedded.attention",
    "generation.cache": "generation.embedded.kv_cache",
    "generation.chat_client": "generation.chat.client",
    "generation.completions": "generation.vllm.protocol",
    "generation.fleet": "generation.vllm.pool",
    "generation.http_body": "generation.http.body",
    "generation.lengths": "generation.embedded.forward",
    "generation.logprob_mode": "generation.vllm.server_check",
    "generation.loop": "generation.http.event_loop",
    "generation.noise": "generation.embedded.sampling",
    "generation.passes": "generation.embedded.forward",
    "generation.probe": "generation.embedded.compatibility",
    "generation.prompts": "generation.embedded.prefix_sharing",
    "generation.remote": "generation.http.engine",
    "generation.rows": "generation.embedded.batch",
    "generation.sampling": "generation.embedded.sampling",
    "generation.servers": "generation.vllm.servers",
    "generation.slots": "generation.embedded.cache_manager",
    "generation.stops": "generation.stop_criteria",
    "generation.support": "generation.embedded.compatibility",
    "generation.tally": "generation.embedded.stats",
    "generation.trl_vllm": "generation.vllm.trl",
    "generation.usage": "generation.chat.usage",
    "generation.vllm_chunking": "generation.vllm.server_check",
    "generation.vllm_weights": "generation.vllm.weights",
    "report.curve": "runs.curve",
    "report.directory": "runs.files.directory",
    "report.encoding": "runs.files.encoding",
    "report.files": "runs.files.atomic",
    "report.metrics": "runs.files.metrics",
    "report.rollouts": "runs.files.rollouts",
    "report.stored": "runs.files.stored",
    "report.summary": "runs.files.summary",
    "rollout.channel": "rollout.workers.channel",
    "rollout.remote": "rollout.workers.env",
    "rollout.worker_main": "rollout.workers.main",
    "runs.agents": "runs.scripted_agents",
    "runs.recall": "runs.resume",
    "runs.recording": "runs.callbacks",
    "runs.reference": "runs.policy",
    "runs.settings": "runs.from_config",
    "runs.sources": "runs.config_sources",
    "runs.stopping": "runs.stop_request",
    "testing": "checks",
    "testing.check": "checks.check",
    "testing.checks": "checks.rules",
    "testing.checks.degenerate": "checks.rules.degenerate",
    "testing.checks.determinism": "checks.rules.determinism",
    "testing.checks.ending": "checks.rules.ending",
    "testing.checks.hostile": "checks.rules.hostile",
    "testing.checks.masks": "checks.rules.masks",
    "testing.checks.randomness": "checks.rules.randomness",
    "testing.checks.rewards": "checks.rules.rewards",
    "testing.checks.speed": "checks.rules.speed",
    "testing.checks.tasks": "checks.rules.tasks",
    "testing.command": "cli.check",
    "testing.constants": "checks.constants",
    "testing.context": "checks.context",
    "testing.players": "checks.players",
    "testing.playing": "checks.playing",
    "testing.records": "checks.records",
    "testing.replay": "checks.replay",
    "testing.report": "checks.report",
    "testing.tokenizers": "checks.tokenizers",
    "tokens.template_trial": "tokens.template_sandbox",
    "training.ahead": "training.rollouts.ahead",
    "training.assigner": "training.advantages",
    "training.best": "training.best_model",
    "training.boundaries": "training.checkpoints",
    "training.chunks": "training.loss.chunks",
    "training.compact_head": "training.trl_compat",
    "training.completions": "training.completions_table",
    "training.consistency": "envs.twenty_questions.guess_consistency",
    "training.failures": "training.rollouts.failures",
    "training.given": "training.setting_parsers",
    "training.gradients": "training.distributed",
    "training.imitation": "training.warm_start.imitation",
    "training.metrics": "training.metrics_log",
    "training.objective": "training.loss.objective",
    "training.player": "training.rollouts.collector",
    "training.ranks": "training.distributed",
    "training.ratios": "training.loss.ratios",
    "training.reference": "training.reference_model",
    "training.sampler": "training.rollouts.sampler",
    "training.samples": "training.loss.batch",
    "training.scoring": "training.loss.logprobs",
    "training.signal": "training.rollouts.zero_variance",
    "training.staleness": "training.rollouts.collector",
    "training.stream": "training.rollouts.task_stream",
    "training.sync": "training.rollouts.weight_sync",
    "training.tiny": "training.warm_start.tiny",
    "training.values": "training.setting_ranges",
    "training.weights": "training.loss.weights",
    "types.failures": "runs.failures",
}
"""Old and new names, below `agentsgym`."""

MOVED_NAMES = {
    "agentsgym": {"OptimalAgent": "envs.twenty_questions"},
    "agentsgym.rollout.trial": {"session_seed": "types.rollout_request"},
    "agentsgym.rollout.workers": {
        "MOST_PROCESSES": "rollout.workers.pool",
        "START_SECONDS": "rollout.workers.worker",
        "STOP_SECONDS": "rollout.workers.worker",
        "Worker": "rollout.workers.worker",
        "WorkerLost": "rollout.workers.worker",
        "least_busy": "rollout.workers.pool",
        "started_workers": "rollout.workers.pool",
        "stop_workers": "rollout.workers.pool",
        "workers": "rollout.workers.pool",
    },
    "agentsgym.training.warm_start": {
        "Progress": "training.warm_start.loop",
        "describe": "training.warm_start.loop",
        "imitate": "training.warm_start.loop",
    },
    "agentsgym.types.protocols": {
        "Engine": "types.engine",
        "EngineAgent": "types.engine",
        "wait_for": "types.engine",
    },
    "agentsgym.report": {
        "Figures": "runs.files",
        "MetricsFile": "runs.files",
        "RolloutLine": "runs.files",
        "RolloutWriter": "runs.files",
        "RunDirectory": "runs.files",
        "Summary": "runs.files",
        "draw_curve": "runs.curve",
        "drop_rollouts_from": "runs.files",
        "read_lines": "runs.files",
        "read_metrics": "runs.files",
        "read_rollouts": "runs.files",
        "read_summary": "runs.files",
    },
}
"""By module, names that could be imported from it, and where below `agentsgym` they are now."""


def moved_name(module: str, name: str) -> Any:
    """The object that a module of 0.1 had under this name, with a DeprecationWarning.

    For a module's `__getattr__`; raises AttributeError for a name that it never had.
    """
    if name not in MOVED_NAMES[module]:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    home = f"agentsgym.{MOVED_NAMES[module][name]}"
    warnings.warn(
        f"{module}.{name} is now {home}.{name}; the old name will go with agentsgym 0.3",
        DeprecationWarning,
        stacklevel=3,
    )
    return getattr(importlib.import_module(home), name)


class _MovedFinder(MetaPathFinder, Loader):
    """Asked first: a file may be found under its old name as well, in a package that moved."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.partition(".")
        if package != "agentsgym" or name not in MOVED:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        old = module.__name__
        new = f"agentsgym.{MOVED[old.partition('.')[2]]}"
        warnings.warn(
            f"{old} is now {new}; the old name will go with agentsgym 0.3",
            DeprecationWarning,
            stacklevel=2,
        )
        # The import system takes what stands here once a module has been run.
        sys.modules[old] = importlib.import_module(new)


def install() -> None:
    """Let the old names be imported."""
    if not any(isinstance(finder, _MovedFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _MovedFinder())
