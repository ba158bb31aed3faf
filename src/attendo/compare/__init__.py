"""Comparing recipes: one corpus, one budget, one report.

- What is compared: `plan` refuses what cannot be, `budget` fits schedules,
  `sizes` fits widths, `preparing` begins runs.
- The work, one system a process: `worker` is the process, `processes` listens to it, `speed` times
  its steps, `systems` trains and translates, `memory` and `energy` watch.
- The numbers: `curves`, `families`, `significance`, `buckets` and `dependencies` find them,
  `measure` gathers those of one system and `findings` those of all.
- The report: `report` says it in sentences, tables and pictures, as a page and as text.
- `probes`: experiments of their own, each for one claim.

`comparison` is the way from one end to the other.
"""
