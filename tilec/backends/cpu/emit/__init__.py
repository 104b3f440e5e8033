"""Lowered tile IR as TIR of a CPU: one file for each kind of statement.

`entry` makes the function of a launch; `statements` has the code of what is plain, `loops` that of Parallel.
Values may have one element for each of the lanes of a vectorised loop, of which `context` knows; `vectors`
has how lanes read and write memory, `numbers` what instructions lack, `panels` the operands of products.
"""
