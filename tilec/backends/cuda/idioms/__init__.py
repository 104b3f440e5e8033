"""Usual ways of writing kernels, rewritten into those that strategies take: one rule a file.

| folder | rules about |
|---|---|
| `tiles` | tiles on chip: how they are filled, what only passes through them |
| `grids` | blocks that walk over tiles, flat numbers of blocks, blocks without work |
| `trips` | what stands around or in front of the trips that load tiles and multiply them |
| `sums` | what sums start from, what they are multiplied by or masked with |
| `elements` | loops over elements: branches, pairs, bounds, transposed reads |

Each rule keeps the meaning of a launch and serves whatever has its conditions; `order.IDIOMS` has them in the
order in which they run. A launch that no strategy takes stays as its author wrote it.
"""
