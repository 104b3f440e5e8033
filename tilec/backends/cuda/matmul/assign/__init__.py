"""How the blocks, warps and tiles of a product share its work, where its config leaves that open."""
