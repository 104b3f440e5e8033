"""From machine code to one library, with what its consumers compile, import and link beside it.

`model` is what a package is made of, `family` what it holds of a family of targets. `checks` says what
must hold before anything is generated; `write` makes it all, and `install` puts it into its folder, whose
libraries lie where `places` says.

| folder | holds |
|---|---|
| `text` | pieces of generated text: sizes as C and Rust, free text as each language quotes it |
| `dispatch` | which variant a call gets, as Python says it: their order, their costs, why one is rejected |
| `tables` | the constant data of a library as C: kernels, variants, guards, costs, images |
| `bindings` | what C, C++, Python, Rust, CMake and pkg-config read of a package |
| `operators` | libraries of operators for torch and ONNX Runtime |
| `hub` | a folder for the kernel hub |
| `library` | the library's file: the runtime, the link, what the file says of itself, and reading that |
| `templates` | the texts that all of these fill in |
"""
