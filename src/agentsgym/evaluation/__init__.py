"""Statistics about agents: paired seeds, intervals over clusters, regret."""

from agentsgym.envs.base import UNINFORMED
from agentsgym.evaluation.comparison import Comparison, Difference, compare, smallest_difference
from agentsgym.evaluation.evaluate import (
    Evaluation,
    Information,
    Played,
    assess,
    assess_played,
    default_cluster,
    evaluate,
    evaluate_requests,
    information,
    rollout_requests,
    select,
)
from agentsgym.evaluation.intervals import (
    ClusterMean,
    cluster_bootstrap,
    cluster_mean,
    mean_interval,
    rate_interval,
    wilson,
)
from agentsgym.evaluation.passes import Passes, pass_all, pass_any, passes

__all__ = [
    "UNINFORMED",
    "ClusterMean",
    "Comparison",
    "Difference",
    "Evaluation",
    "Information",
    "Passes",
    "Played",
    "assess",
    "assess_played",
    "cluster_bootstrap",
    "cluster_mean",
    "compare",
    "default_cluster",
    "evaluate",
    "evaluate_requests",
    "information",
    "mean_interval",
    "pass_all",
    "pass_any",
    "passes",
    "rate_interval",
    "rollout_requests",
    "select",
    "smallest_difference",
    "wilson",
]
