"""Lowered tile IR as TIR, as far as it is the same for every family of targets.

`context` is what emission carries along; a family has a child of it, which knows the code of statements.
`parameters` opens the function of a launch, `memory` and `storage` lay out buffers; `statements`, `loops`,
`atomic` and `lines` are about statements, `values` about expressions, `access` about elements, `texts` about
sizes.
"""
