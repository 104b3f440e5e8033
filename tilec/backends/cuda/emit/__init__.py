"""Lowered tile IR as device TIR: one file for each kind of statement.

`entry` makes the function of a launch and `statements` the code of what is plain; `context` is what they
carry along, `emitter` that with all forms at hand, `memory` where tiles lie, `held` what a thread has of
them. `loops` has the code of loops over elements, `products` that of warps' products, `copies` of cp.async,
`threads` of barriers, shuffles and reductions, `grid` of the order of tiles, `numbers` of integer arithmetic.
"""
