"""Comparing recipes: one corpus, one budget, one report.

- What is compared: `plan` refuses what cannot be, `budget` fits schedules, `preparing` begins runs.
- The work, one system a process: `worker` is the process, `processes` listens to it, `speed` times
  its steps, `systems` trains and translates, `memory` and `energy` watch.
- The numbers: `curves`, `families`, `significance`, `buckets` and `dependencies` find them,
  `measure` gathers those of one system and `findings` those of all.
- The report: `summary` in sentences, `tables`, `plots` (with `drawing`), `examples`; `composing`
  makes a `document` of them, `report_html` and `report_md` write it, in the words of `wording`.

`comparison` is the way from one end to the other.
"""
