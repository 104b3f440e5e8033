"""Products by the matrix instructions of a wave: MFMA of 64 lanes, WMMA of 32."""
