"""The strategy of attention: several products in one loop, with rows that stay in registers (TMA, wgmma).

| folder | holds |
|---|---|
| `assign` | which statements load and which compute, where tiles lie, in which order a grid's tiles come |
| `passes` | the steps on `AttentionRoles`: versions of tiles, waits, masks, sums, products under way |
| `emit` | device code: the walk over tiles, rings, products, words of fragments, stores |

`strategy` names the passes in order, `nodes` has their statements. No pass asks for a softmax: what makes a
launch one of these is which of its tiles are loaded and which of its rows stay in registers.
"""
