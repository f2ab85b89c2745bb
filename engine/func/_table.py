"""Which rule computes an op for all slices at once; ops that broadcast, or work element by element, need none."""

from __future__ import annotations

from engine.func._lanes import registered
from engine.func._rules import (
    _addmv,
    _all_lead,
    _attention,
    _batch_norm,
    _batched,
    _convolution,
    _dims,
    _dot,
    _embedding,
    _expand,
    _fold,
    _index_select,
    _indexed,
    _layer_norm,
    _lead,
    _linear,
    _linear_each,
    _loss,
    _matmul,
    _mm,
    _mv,
    _nll,
    _permute,
    _pooled_rows,
    _position,
    _repeat,
    _reshaped,
    _rms_norm,
    _rms_norm_backward,
    _rows,
    _scaled_sum,
    _shifted,
    _squeeze,
    _sum_to,
    _transposed,
    _whole,
    call,
    rule,
)
from engine.ops import (
    along,
    attention,
    comparison,
    complex,
    copies,
    copying,
    distance,
    extremes,
    gathering,
    indexing,
    joining,
    loss,
    norm,
    pooling,
    products,
    rearranging,
    reduction,
    scan,
    shape,
    softmax,
    sorting,
    spectral,
    strides,
)
from engine.ops import convolution as conv
from engine.ops.linalg import contractions, eigen, factor, norms, systems
from engine.ops.loss import cross_entropy
from engine.ops.nn import bags, embedding, grids, padding, resample, vision
from engine.ops.norm import groups as norm_groups
from engine.ops.norm import rms
from engine.ops.pointwise import math
from engine.ops.pooling import adaptive as adaptive_pooling
from engine.ops.products import addmm as products_add
from engine.ops.recurrent import cells
from engine.ops.special import gamma

rule(
    _dims("dim", whole="dim"),
    reduction.sum,
    reduction.nansum,
    reduction.mean,
    reduction.count_nonzero,
    reduction.var_of,
    reduction.std_of,
    reduction.logsumexp,
    extremes.amax,
    extremes.amin,
    comparison.any,
    comparison.all,
    norms.linalg_vector_norm,
)
rule(
    _dims("dim"),
    reduction.prod_dim,
    extremes.max_dim,
    extremes.min_dim,
    extremes.aminmax,
    softmax.softmax,
    softmax.log_softmax,
    softmax.softmax_backward,
    softmax.log_softmax_backward,
    scan.cumsum,
    scan.cumprod,
    scan.cummax,
    scan.cummin,
    scan.logcumsumexp,
    sorting.sort,
    sorting.argsort,
    sorting.topk,
    sorting.kthvalue,
    sorting.median_dim,
    sorting.nanmedian_dim,
    sorting.mode,
    joining.cut,
    gathering.gather,
    gathering.scatter_src,
    gathering.scatter_value,
    gathering.scatter_add,
    gathering.scatter_reduce,
    extremes.take_along,
    joining.cat,
    joining.stack_tensors,
    joining.split_with_sizes,
    joining.split_every,
    copies.unsafe_split_every,
    copies.unsafe_split_with_sizes,
    joining.unbind,
    shape.select,
    spectral.fft_c2c,
    spectral.fft_r2c,
    spectral.fft_c2r,
    contractions.linalg_cross,
)
rule(_dims("dims"), rearranging.flip)
rule(_dims("dim"), rearranging.repeat_each)
rule(_dims("dim0", "dim1"), shape.transpose)
rule(_dims("dimension"), strides.unfold)
rule(_dims("dim1", "dim2"), strides.diagonal)
rule(lambda c: c.run(dim1=_shifted(c["dim1"]), dim2=_shifted(c["dim2"])), rearranging.diag_embed)
rule(_whole("prod_dim", False), reduction.prod_all)
rule(_whole("amax", True), extremes.max_all)
rule(_whole("amin", True), extremes.min_all)
rule(_whole("median_dim", False), sorting.median_all)
rule(_whole("nanmedian_dim", False), sorting.nanmedian_all)
rule(_position, extremes.argmax, extremes.argmin)
rule(_reshaped("size"), shape.view_size)
rule(_reshaped("shape"), shape.reshape_copy)
rule(_expand, shape.expand)
rule(_permute, shape.permute)
rule(_transposed, shape.t)
rule(_squeeze, shape.squeeze)
rule(lambda c: c["input"].unsqueeze(_shifted(c["dim"])), shape.unsqueeze)
rule(_sum_to, reduction.sum_to_size)
rule(_repeat, rearranging.repeat)
rule(_indexed, shape.basic_index, indexing.select_index, shape.item_index)
rule(_mm("input", "mat2"), products.mm, products.bmm)
rule(_mv, products.mv)
rule(_dot, products.dot)
rule(_batched, products.batched)
rule(lambda c: _scaled_sum(c, _matmul(c["mat1"], c["mat2"]), 2), products_add.addmm)
rule(_addmv, products_add.addmv)
rule(lambda c: _scaled_sum(c, _matmul(c["batch1"], c["batch2"]), 3), products_add.baddbmm)
rule(_linear, products.linear)
rule(_linear_each, products.linear_each)
rule(_batch_norm, norm.batch_norm_train)
rule(_convolution, conv.convolution)
rule(_embedding, embedding.embedding)
rule(_pooled_rows, bags.pooled_rows)
rule(_index_select, along.index_select)
rule(_layer_norm, norm.native_layer_norm, norm.layer_norm_inference)
rule(_rms_norm, rms.rms_norm_inference, rms.rms_norm_train)
rule(_rms_norm_backward, rms.rms_norm_backward)
rule(_attention, attention.attention, attention.attention_inference)
rule(_fold("running_mean", "running_var", "weight", "bias"), norm.batch_norm_eval)
rule(_fold("weight", "bias"), norm_groups.normalize_groups)
rule(_rows, cells.lstm_gates, cells.lstm_gates_backward, cells.gru_gates, cells.gru_gates_backward)
rule(_nll, cross_entropy.softmax_nll_rows, cross_entropy.nll_loss_rows)
rule(_all_lead, grids.constant_in)
rule(
    _fold(),
    pooling.max_pool2d_values,
    pooling.max_pool3d_values,
    pooling.avg_pool2d_values,
    pooling.avg_pool3d_values,
    resample.adaptive_average1d,
    resample.adaptive_average2d,
    resample.adaptive_average3d,
    resample.upsample_nearest1d,
    resample.upsample_nearest2d,
    resample.upsample_nearest3d,
    resample._upsample_nearest_exact1d,
    resample._upsample_nearest_exact2d,
    resample._upsample_nearest_exact3d,
    resample.upsample_linear1d,
    resample.upsample_bilinear2d,
    resample.upsample_trilinear3d,
    resample.upsample_bicubic2d,
    pooling.max_pool_indices,
    adaptive_pooling.adaptive_max_indices,
    adaptive_pooling.gradient_at_maxima,
    adaptive_pooling.maxima_of_images,
    pooling.pool_gather,
    vision.im2col,
    vision.col2im,
)
rule(
    _lead,
    copying.clone,
    copying.to_copy,
    shape.alias,
    rearranging.tril,
    rearranging.triu,
    padding.constant_pad_nd,
    complex.as_complex,
    complex.realpart,
    complex.imaginarypart,
    complex.view_as_real,
    complex.view_as_complex,
    math.frexp,
    systems.inverse,
    systems.linalg_inv_ex,
    systems.linalg_det,
    systems.linalg_slogdet,
    systems.linalg_lu_factor_ex,
    systems.linalg_solve_system,
    systems.linalg_solve_triangular,
    eigen.linalg_svd,
    eigen.linalg_svdvals,
    eigen.linalg_eigh,
    eigen.linalg_eigvalsh,
    eigen.linalg_eig,
    eigen.linalg_eigvals,
    eigen.matrix_exp,
    factor.linalg_cholesky_ex,
    factor.linalg_cholesky,
    factor.cholesky,
    factor.cholesky_inverse,
    factor.linalg_qr,
    distance.euclidean_cdist,
    distance.general_cdist,
    distance.general_cdist_backward,
    gamma.polygamma_of,
    padding.pad_by_copy,
)
rule(
    _loss,
    loss.mse_loss,
    loss.smooth_l1_loss,
    loss.huber_loss,
    loss.soft_margin_loss,
    loss.binary_cross_entropy,
    loss.bce_with_logits,
)

registered.call = call
