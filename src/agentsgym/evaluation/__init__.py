"""Statistics about agents: paired seeds, intervals over clusters, regret."""

from agentsgym.evaluation.evaluation import Evaluation, Played, assess, evaluate
from agentsgym.evaluation.intervals import cluster_bootstrap, rate_interval, wilson
from agentsgym.evaluation.tasks import default_cluster, places, select

__all__ = [
    "Evaluation",
    "Played",
    "assess",
    "cluster_bootstrap",
    "default_cluster",
    "evaluate",
    "places",
    "rate_interval",
    "select",
    "wilson",
]
