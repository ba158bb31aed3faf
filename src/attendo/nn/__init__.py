"""Parts of a Transformer, each tensor in, tensor out. Independent of text and training.

Shapes, one legend for the whole package:

    R rows of a grid (= B, a batch of one sentence a row)    H heads
    W columns of a grid                                      K width of a head (d_k = d_v)
    S source or key length                                   F d_ff
    T target or query length                                 V vocabulary
    D d_model                                                N beams

Batch first, always; heads before time inside attention (R H T K).
Masks are boolean, True = may attend, and are built in `grid.py` only.
"""
