"""TextArena's offline single-player games, as environments `TextArena/<Game>`."""
