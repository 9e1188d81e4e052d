"""Statistics about agents: paired seeds, intervals over clusters, regret."""

from agentsgym.evaluation.evaluation import Evaluation, Played, assess, evaluate
from agentsgym.evaluation.intervals import cluster_bootstrap, rate_interval, wilson
from agentsgym.evaluation.tasks import default_cluster, rollout_requests, select
from agentsgym.types.renamed import renamed

__all__ = [
    "Evaluation",
    "Played",
    "assess",
    "cluster_bootstrap",
    "default_cluster",
    "evaluate",
    "rate_interval",
    "rollout_requests",
    "select",
    "wilson",
]

__getattr__ = renamed(__name__, {"places": ("rollout_requests", lambda: rollout_requests)})
