"""Retrieval and answer evaluation: labelled sets, a grid of configurations, paired statistics, graders, reports."""
