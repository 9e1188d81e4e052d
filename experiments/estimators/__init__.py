"""Estimators beside those of the package, and the board that measures any of them."""
