from __future__ import annotations

from tilec.manifest.text.document import key_lines


def test_lines_of_keys_in_tables_and_table_arrays() -> None:
    text = """\
top = 1
[a.b]
x = [
  1, # ] not the end
  2,
]
"y z" = 3
[[k]]
n = \"\"\"
not = a key
\"\"\"
m.o = { p = 1 }
[[k.sub]]
s = '['
[[k]]
[k.table]
t = 1
"""
    assert key_lines(text) == {
        ("top",): 1,
        ("a", "b"): 2,
        ("a", "b", "x"): 3,
        ("a", "b", "y z"): 7,
        ("k", 0): 8,
        ("k", 0, "n"): 9,
        ("k", 0, "m", "o"): 12,
        ("k", 0, "sub", 0): 13,
        ("k", 0, "sub", 0, "s"): 14,
        ("k", 1): 15,
        ("k", 1, "table"): 16,
        ("k", 1, "table", "t"): 17,
    }
