"""Comparing recipes: one corpus, one budget, one report.

- What is compared: `plan` checks recipes and budget, `preparing` makes run folders and fits widths.
- The work, one process per system: `worker` is the process, `processes` starts it and shows its
  progress, `meters` measures memory and power.
- The numbers: `significance`, `dependencies` and `families` compute them, `measure` gathers those
  of one system and `findings` those of all.
- `report` writes them as sentences, tables and plots, in HTML and Markdown.
- `probes`: small experiments, each for one claim.

`comparison` does all of it, from the first to the last.
"""
