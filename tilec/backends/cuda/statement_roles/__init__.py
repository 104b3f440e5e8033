"""Launches that no strategy takes, on GPUs with TMA: their warps get roles by what each statement does.

| folder | holds |
|---|---|
| `split` | `SplitRoles`: which statements load, which compute, and each role's program |
| `rings` | which tiles loads run ahead into, in how many stages |
| `boxes` | which copies, stores and additions TMA makes |
| `operands` | operands that threads make, turn or join before wgmma reads them |
| `trips` | the order of a consumer's statements, so that products stay under way |
| `turns` | two warpgroups that share the columns of a result |
| `tensor_memory` | sums of tcgen05 |
| `emit` | device code of the nodes that all of these add |
"""
