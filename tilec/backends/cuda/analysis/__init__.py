"""What CUDA passes ask about statements; nothing here changes one, but where a module says so.

| folder | answers |
|---|---|
| `layouts` | which thread holds which element of a fragment |
| `accesses` | which elements statements touch, as vectors and in banks, and what two of them share |
| `products` | which products an instruction takes, and what it wants of operands |
| `pipelines` | what can run ahead of its trip, in how many stages, and when a tile is in use |
| `trips` | where loops can be cut, which trips come first |
| `blocks` | blocks of a grid and threads of a block, as numbers |
"""
