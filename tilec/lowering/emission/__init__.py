"""What emission of TIR shares on all targets: access to memory, expressions, parameters, statements."""
