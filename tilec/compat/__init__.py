"""Every name of another package's surface: this folder is the second one of the package `tilec`, so that the
file ``carver/arch/driver.py`` here is the module ``tilec.carver.arch.driver``.

Modules import each other by relative names, which are right under both paths. `aliases` has the names that
live elsewhere in tilec, and those that are not offered."""

raise ImportError("modules of tilec/compat are imported as modules of tilec: import tilec.carver")
