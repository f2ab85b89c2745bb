"""Names of torch's top level that are imported at first use."""

FOREACH_UNARY = """
abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal round rsqrt
sigmoid sign sin sinh sqrt tan tanh trunc
"""
FOREACH_BINARY = "add sub mul div clamp_max clamp_min maximum minimum pow"
FOREACH_TERNARY = "addcdiv addcmul lerp"
FOREACH = [
    f"_foreach_{name}{mark}"
    for name in f"{FOREACH_UNARY} {FOREACH_BINARY} {FOREACH_TERNARY}".split()
    for mark in ("", "_")
]
FOREACH += """
_foreach_clone _foreach_copy_ _foreach_max _foreach_mm _foreach_norm _foreach_powsum _foreach_zero_
""".split()
TOP_LEVEL = """
AcceleratorError Event OutOfMemoryError Stream _assert _assert_async _check _check_index
_check_is_size _check_not_implemented _check_tensor_all _check_tensor_all_with _check_type _check_value _check_with
_has_compatible_shallow_copy_type _shape_as_tensor SymBool SymFloat SymInt Type
are_deterministic_algorithms_enabled clear_autocast_cache compile cond get_autocast_cpu_dtype get_autocast_dtype
get_autocast_gpu_dtype get_deterministic_debug_mode get_device get_device_module get_float32_matmul_precision
get_num_interop_threads get_num_threads is_autocast_cache_enabled is_autocast_cpu_enabled is_autocast_enabled
is_deterministic_algorithms_warn_only_enabled is_warn_always_enabled set_autocast_cache_enabled
set_autocast_cpu_dtype set_autocast_cpu_enabled set_autocast_dtype set_autocast_enabled set_autocast_gpu_dtype
set_deterministic_debug_mode set_float32_matmul_precision set_flush_denormal set_num_interop_threads
set_num_threads set_warn_always sym_float sym_int sym_ite sym_max sym_min sym_not sym_sqrt sym_sum torch
_convert_indices_from_coo_to_csr _convert_indices_from_csr_to_coo _empty_affine_quantized _grouped_mm _scaled_mm
_scaled_mm_v2 _segment_reduce _storage_classes _tensor_classes legacy_contiguous_format sparse_compressed_tensor
sparse_csc_tensor
has_lapack has_mkl has_openmp has_spectral
binary_cross_entropy_with_logits cosine_embedding_loss ctc_loss hinge_embedding_loss kl_div margin_ranking_loss
poisson_nll_loss triplet_margin_loss typename unify_type_list use_deterministic_algorithms vmap while_loop
"""
# what `engine.NAME` takes from engine.encoded.quantized
OF_QUANTIZED = """per_channel_affine per_channel_affine_float_qparams per_channel_symmetric per_tensor_affine
per_tensor_symmetric qscheme quantize_per_channel quantize_per_tensor quantize_per_tensor_dynamic dequantize"""
# Tensor methods whose bodies are in engine.sparse.compressed
OF_ROWS = "to_sparse_csr crow_indices col_indices"
# Tensor methods whose bodies are in engine.sparse
OF_SPARSE = "to_sparse to_dense sparse_mask coalesce indices values is_coalesced sparse_dim dense_dim"
STORAGES = "BFloat16 Bool Byte Char ComplexDouble ComplexFloat Double Float Half Int Long Short"
