"""What threads, warps, groups and clusters do: indices, votes, barriers, instructions on fragments."""
