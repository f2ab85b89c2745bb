"""torch._dynamo.config: settings that can be set and are without effect."""

suppress_errors = False
verbose = False
cache_size_limit = recompile_limit = 8
accumulated_cache_size_limit = 256
capture_scalar_outputs = False
capture_dynamic_output_shape_ops = False
automatic_dynamic_shapes = True
optimize_ddp = True
skip_fwd_side_effects_in_bwd_under_checkpoint = False
