"""The parts of the reference interpreter: values, intrinsics, storage, expressions, statements."""
