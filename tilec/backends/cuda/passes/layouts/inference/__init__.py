"""Steps of `InferLayouts`, in the order in which they run: one question a file.

| file | says |
|---|---|
| `teams` | which warps work together, and on what |
| `known` | what is known so far: layouts of fragments and tiles, layouts of loops |
| `shared_tiles` | how shared tiles lie that TMA brings or stores, and those that products hand on |
| `anchors` | what products, scans and loads by lanes fix |
| `follow` | what follows from a layout that is known: loops from fragments, fragments from loops |
| `choose` | what the statement with most to say takes where nothing follows any more |
"""
