"""Statistics about agents: paired seeds, intervals over clusters, regret."""

from agentsgym.evaluation.cluster_mean import ClusterMean, cluster_mean
from agentsgym.evaluation.comparison import Comparison, Difference, compare
from agentsgym.evaluation.evaluation import (
    Evaluation,
    Played,
    assess,
    assess_requests,
    evaluate,
    evaluate_requests,
)
from agentsgym.evaluation.exploration import SuiteFigures, suite_figures
from agentsgym.evaluation.intervals import cluster_bootstrap, mean_interval, rate_interval
from agentsgym.evaluation.passes import Passes, pass_all, pass_any, passes
from agentsgym.evaluation.plan import Plan
from agentsgym.evaluation.suite import Suite, parse_suite
from agentsgym.evaluation.suite_comparison import SuiteComparison, suite_comparison
from agentsgym.evaluation.tasks import default_cluster, rollout_requests, select
from agentsgym.evaluation.wilson import wilson

__all__ = [
    "ClusterMean",
    "Comparison",
    "Difference",
    "Evaluation",
    "Passes",
    "Plan",
    "Played",
    "Suite",
    "SuiteComparison",
    "SuiteFigures",
    "assess",
    "assess_requests",
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
    "suite_comparison",
    "suite_figures",
    "wilson",
]
