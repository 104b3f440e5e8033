"""Passes of CUDA targets: one pass a file, in folders by what they are about; `order` says when each runs.

| folder | passes about |
|---|---|
| `threads` | what each thread does by itself, names that it has, barriers of the author |
| `loads` | which copies run ahead of the statements that use them, and who makes them |
| `products` | operands as instructions take them, which instruction it is |
| `loops` | loops over elements: what an iteration holds, vectors |
| `sums` | what iterations add up together: reductions, scans, updates |
| `layouts` | which thread holds which element |
| `waits` | places in shared memory, barriers, fences: the last passes |
"""
