"""The checks: functions that return Passed or raise Failed."""
