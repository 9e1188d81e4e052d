"""What engines over HTTP share: the client, its event loop, the base of an engine."""
