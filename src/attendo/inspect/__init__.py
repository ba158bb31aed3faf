"""Looking inside: what a model attends to, and how much that explains.

`looking` reads a pair and keeps everything; `heads` names heads and `silence` takes them away;
`aggregates` sums many weights up; `checks` asks whether the weights explain anything; `beams` is
the tree of a search; `answers`, `heatmap` and `page` show all of it.
"""
