"""Reports about past runs: credit of stored rollouts under several estimators."""
