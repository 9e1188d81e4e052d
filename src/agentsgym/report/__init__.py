"""Looking at what happened: credit of stored rollouts under several estimators."""
