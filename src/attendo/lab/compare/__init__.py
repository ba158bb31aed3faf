"""Comparing recipes: one corpus, one budget, one report.

- What is compared: `plan` checks recipes and budget, `folders` makes run folders and fits widths.
- The work, one process per system: `worker` is the process, `processes` starts it and shows its
  progress.
- The numbers: `significance`, `dependencies` and `families` compute them, `measure` gathers those
  of one system and `findings` those of all.
- The report: `summary`, `tables` and `plots` are its parts, `report` puts them together.

`comparison` does all of it, from the first to the last.
"""
