"""Pieces of generated text: sizes as C and Rust, free text as each language quotes it."""
