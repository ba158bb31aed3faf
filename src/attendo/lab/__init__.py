"""Measurements: the clock, benchmarks, comparisons of recipes, probes of single claims."""
