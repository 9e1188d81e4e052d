"""Explore: games in which exploring costs an episode and pays in later ones, with exact scores."""
