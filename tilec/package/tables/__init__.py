"""The constant data of a library as C, in the forms of `runtime_c/src/records.h`."""
