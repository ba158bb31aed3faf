"""Inspection: what a model attends to, and how far that explains its translation.

`record` records a pair; `heads` names heads and ablates them; `aggregates` combines the
attention weights of layers; `checks` compares them with other measurements; `beams` is the tree of
a beam search; `answers`, `heatmap`, `animation` and `page` present all of it.
"""
