"""The viewer: a run or an evaluation as a page for the browser, in a file."""
