"""What strategies share: rings, barriers, TMA, wgmma, epilogues.

Modules of this folder answer questions (`tma` and `wgmma`: which boxes and products these take; `stores` and
`tails`: how elements leave, and where tiles end beyond their tensor; `unfit`: why a launch keeps its older
road); `emit` has the device code that all strategies write, from the frame of a kernel to its epilogue.
"""
