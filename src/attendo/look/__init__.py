"""Inspection: what a model attends to, and how far that explains what it predicts.

`record` records a text; `heads` names heads and `ablation` ablates them; `aggregates` combines the
attention weights of layers; `checks` compares them with other measurements; `beams` is the tree of
a beam search; `answers`, `heatmap`, `animation` and `page` present all of it.
"""
