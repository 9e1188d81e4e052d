"""The viewer: a run or an evaluation as a page for the browser, written to a file or served."""
