"""The strategy of products and convolutions on GPUs with TMA and wgmma: one warpgroup loads, others compute.

| folder | holds |
|---|---|
| `match` | which launches are products, of which operands, with which epilogue |
| `assign` | how the work is shared out: roles, clusters, bands of tiles, parts of K |
| `passes` | the steps from a `Matmul` to its ring, its tensor copies and its instructions |
| `emit` | device code: the walk over tiles, the ring, what leaves the registers |
| `folding` | second operands of 16 bits whose rows begin anywhere, as matrices whose rows TMA takes |

`strategy` names the passes in order, `nodes` has their statements.
"""
