"""ClassicalReasoning: questions with known answers."""
