"""References and inputs of kernels above for the tiles of attention.toml, where they ask for them."""

from __future__ import annotations

from functools import partial

import block_sparse
import latent_attention
import linear_attention
import split_decode

mla_paged_inputs = partial(latent_attention.mla_paged_inputs, block_size=64)
sparse_mla_fwd_reference = partial(latent_attention.sparse_mla_fwd_reference, dim=512)
native_sparse_fwd_reference = partial(block_sparse.native_sparse_fwd_reference, block=64)
paged_decode_reference = partial(split_decode.paged_decode_reference, block=64)
paged_decode_inputs = partial(split_decode.paged_decode_inputs, block=64)
block_list_decode_reference = partial(block_sparse.block_list_decode_reference, block=64)
block_list_decode_inputs = partial(block_sparse.block_list_decode_inputs, block=64)
block_mask_attn_reference = partial(block_sparse.block_mask_attn_reference, block=128)
chunk_kkt_reference = partial(linear_attention.chunk_kkt_reference, chunk=64)
chunk_delta_h_reference = partial(linear_attention.chunk_delta_h_reference, chunk=64)


def sparse_mla_fwd_inputs(dims, rng):
    """Lists of as many keys as the kernel takes."""
    return latent_attention.sparse_mla_fwd_inputs(
        dims, rng, heads=64, dim=512, tail_dim=64, topk=dims["topk"]
    )


def native_sparse_fwd_inputs(dims, rng):
    """As many blocks as the kernel takes."""
    return block_sparse.native_sparse_fwd_inputs(dims, rng, block=64, selected=dims["selected_blocks"])
