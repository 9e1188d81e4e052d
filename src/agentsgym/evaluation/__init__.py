"""Statistics about agents: paired seeds, intervals over clusters, regret."""

from agentsgym.evaluation.comparison import Comparison, Difference, compare, smallest_difference
from agentsgym.evaluation.evaluate import (
    Evaluation,
    Played,
    assess,
    assess_played,
    default_cluster,
    evaluate,
    evaluate_requests,
    rollout_requests,
    select,
)
from agentsgym.evaluation.exploration import (
    SuiteComparison,
    SuiteFigures,
    suite_comparison,
    suite_figures,
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
from agentsgym.evaluation.suite import Suite, parse_suite

__all__ = [
    "ClusterMean",
    "Comparison",
    "Difference",
    "Evaluation",
    "Passes",
    "Played",
    "Suite",
    "SuiteComparison",
    "SuiteFigures",
    "assess",
    "assess_played",
    "cluster_bootstrap",
    "cluster_mean",
    "compare",
    "default_cluster",
    "evaluate",
    "evaluate_requests",
    "mean_interval",
    "parse_suite",
    "pass_all",
    "pass_any",
    "passes",
    "rate_interval",
    "rollout_requests",
    "select",
    "smallest_difference",
    "suite_comparison",
    "suite_figures",
    "wilson",
]
