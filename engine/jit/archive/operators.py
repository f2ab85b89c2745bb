"""The operators that a TorchScript archive may call: the whole list, and what stands for each.

A name that is not here cannot be called, so that a program can compute with tensors, numbers, text, lists and
dictionaries, print, and raise; it cannot reach a file, a process, a socket, a module or an attribute of an object.
Names and the order of arguments are those of torch's native functions:
https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/native_functions.yaml
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import engine.nn.functional as F
from engine.dispatch.out import store
from engine.jit.archive import (
    fused_operators,
    python_operators,
    tensor_operators,  # noqa: F401  it adds to the lists of python_operators
)
from engine.jit.archive.schemas import find as forms
from engine.library import operators as library_operators
from engine.ops import functions as torch
from engine.torch_names.facade import facade

__all__ = ["COMPARED", "INFIX", "PREFIX", "drops", "find", "find_into", "why_not"]

# Calls of exactly this many plain arguments that are Python's own operators, for tensors and numbers alike.
INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "floordiv": "//",
    "__and__": "&",
    "__or__": "|",
    "__xor__": "^",
    "matmul": "@",
}
COMPARED = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "__is__": "is",
    "__isnot__": "is not",
}
PREFIX = {"neg": "-", "__not__": "not "}

# engine.NAME takes aten's arguments in aten's order.
_DIRECT = frozenset(
    """
_sample_dirichlet _standard_gamma
abs_ absolute absolute_ acos_ acosh_ adaptive_avg_pool1d adaptive_max_pool1d add add_ addbmm addbmm_ addcdiv addcdiv_
addcmul addcmul_ addmm addmm_ addmv addmv_ addr addr_ adjoint affine_grid_generator all allclose alpha_dropout
alpha_dropout_ amax amin aminmax angle any arange arccos arccos_ arccosh arccosh_ arcsin arcsin_ arcsinh arcsinh_ arctan
arctan2 arctan2_ arctan_ arctanh arctanh_ argmax argmin argsort argwhere as_strided as_strided_scatter as_tensor asin_
asinh_ atan2_ atan_ atanh_ atleast_1d atleast_2d atleast_3d avg_pool1d baddbmm baddbmm_ bartlett_window batch_norm
bernoulli bilinear bincount binomial bitwise_and bitwise_and_ bitwise_left_shift bitwise_left_shift_ bitwise_not
bitwise_not_ bitwise_or bitwise_or_ bitwise_right_shift bitwise_right_shift_ bitwise_xor bitwise_xor_ blackman_window
bmm broadcast_to bucketize cat cdist ceil_ celu celu_ chain_matmul channel_shuffle cholesky cholesky_inverse
cholesky_solve chunk clamp clamp_ clamp_max clamp_max_ clamp_min clamp_min_ clip clip_ clone column_stack combinations
complex concat concatenate conj conj_physical conj_physical_ constant_pad_nd conv1d conv2d conv3d conv_tbc
conv_transpose1d conv_transpose2d conv_transpose3d convolution copysign_ corrcoef cos_ cosh_ cosine_similarity
count_nonzero cov cross cummax cummin cumprod cumprod_ cumsum cumsum_ cumulative_trapezoid deg2rad deg2rad_ det detach
detach_ diag diag_embed diagflat diagonal diagonal_scatter diff digamma digamma_ dist div divide dot dropout dropout_
dsplit dstack einsum embedding empty empty_like empty_strided eq eq_ equal erf_ erfc_ erfinv erfinv_ exp2 exp2_ exp_
expand expand_as expm1_ eye fake_quantize_per_channel_affine fake_quantize_per_tensor_affine feature_alpha_dropout
feature_dropout fill fill_ fix fix_ flatten flip fliplr flipud float_power floor_ floor_divide floor_divide_ fmax fmin
fmod_ frac frac_ full full_like gather gcd_ ge ge_ geqrf ger greater greater_ greater_equal greater_equal_ grid_sampler
group_norm gt gt_ hamming_window hann_window hardshrink heaviside heaviside_ histc histogram hsplit hstack hypot hypot_
i0 i0_ igamma igamma_ igammac igammac_ imag index_add index_add_ index_copy index_copy_ index_fill index_reduce
index_reduce_ index_select inner instance_norm inverse is_complex is_conj is_floating_point is_grad_enabled is_neg
is_nonzero is_same_size is_signed isclose isin isneginf isposinf isreal istft kaiser_window kron kthvalue layer_norm lcm
lcm_ ldexp_ le le_ lerp less less_ less_equal less_equal_ lgamma_ linspace log10_ log1p_ log2 log2_ log_ log_softmax
logaddexp logaddexp2 logcumsumexp logdet logical_and logical_and_ logical_not logical_not_ logical_or logical_or_
logical_xor logical_xor_ logit logit_ logspace logsumexp lt lt_ lu_solve lu_unpack masked_fill masked_scatter
masked_scatter_ masked_select matmul matrix_exp matrix_power max_pool1d max_pool1d_with_indices max_pool2d max_pool3d
maximum mean median minimum mm mode moveaxis movedim msort mul mul_ multinomial multiply multiply_ mv mvlgamma
nan_to_num nan_to_num_ nanmean nanmedian nanquantile nansum narrow narrow_copy native_batch_norm native_channel_shuffle
native_dropout native_group_norm native_layer_norm ne ne_ neg_ negative negative_ nextafter nextafter_ nonzero
nonzero_static norm norm_except_dim normal not_equal not_equal_ numel ones ones_like orgqr ormqr outer pairwise_distance
pdist permute pinverse pixel_shuffle pixel_unshuffle poisson polar polygamma positive pow_ prelu prod promote_types put
put_ qr quantile rad2deg rad2deg_ rand rand_like randint randint_like randn randn_like randperm range ravel real
reciprocal reciprocal_ relu relu_ remainder_ renorm repeat_interleave reshape reshape_as resize_as_ resolve_conj
resolve_neg result_type rms_norm roll rot90 round_ row_stack rrelu rrelu_ rsqrt rsqrt_ rsub scalar_tensor scatter
scatter_add scatter_add_ scatter_reduce scatter_reduce_ searchsorted segment_reduce select_scatter selu selu_
set_grad_enabled sgn sgn_ sigmoid sigmoid_ sign sign_ signbit sin_ sinc sinc_ sinh_ slice_scatter slogdet softmax
special_chebyshev_polynomial_t special_chebyshev_polynomial_u special_chebyshev_polynomial_v
special_chebyshev_polynomial_w special_digamma special_entr special_erf special_erfc special_erfcx special_erfinv
special_exp2 special_expit special_gammainc special_gammaincc special_gammaln special_hermite_polynomial_h
special_hermite_polynomial_he special_i0 special_i0e special_i1 special_i1e special_laguerre_polynomial_l
special_legendre_polynomial_p special_log_ndtr special_log_softmax special_logit special_logsumexp
special_modified_bessel_i0 special_modified_bessel_i1 special_multigammaln special_ndtr special_ndtri special_polygamma
special_psi special_shifted_chebyshev_polynomial_t special_shifted_chebyshev_polynomial_u
special_shifted_chebyshev_polynomial_v special_shifted_chebyshev_polynomial_w special_softmax
special_spherical_bessel_j0 special_xlog1py special_xlogy special_zeta split_with_sizes sqrt_ square square_ squeeze
stack std std_mean sub sub_ subtract subtract_ sum_to_size svd swapaxes swapdims t take take_along_dim tan_ tanh tanh_
tensor_split threshold threshold_ topk trace transpose trapezoid trapz triangular_solve tril tril_ tril_indices triu
triu_ triu_indices true_divide trunc trunc_ unbind unflatten unique_consecutive unsafe_chunk unsafe_split
unsafe_split_with_sizes unsqueeze vander var var_mean vdot view_as view_as_complex view_as_real vsplit vstack where
xlogy xlogy_ zero_ zeros zeros_like
""".split()
)

# Tensor.NAME takes aten's arguments in aten's order.
_METHODS = frozenset(
    """
as_strided_ bernoulli_ cauchy_ contiguous copy_ cpu dim div_ divide_ element_size exponential_ fill_diagonal_
float_power_ geometric_ index_fill_ index_put_ is_contiguous item lerp_ log_normal_ masked_fill_ mvlgamma_ new_empty
new_empty_strided new_full new_ones new_zeros normal_ polygamma_ random_ renorm_ repeat requires_grad_ resize_ scatter_
squeeze_ storage_offset swapaxes_ swapdims_ t_ transpose_ true_divide_ type_as unfold uniform_ unsqueeze_
""".split()
)

_IN_MODULES = {
    "linalg": "cholesky cholesky_ex cond cross det diagonal eig eigh eigvals eigvalsh householder_product inv inv_ex "
    "lstsq lu lu_factor lu_factor_ex lu_solve matmul matrix_exp matrix_norm matrix_power matrix_rank multi_dot norm "
    "pinv qr slogdet solve solve_ex solve_triangular svd svdvals tensorinv tensorsolve vander vecdot vector_norm",
    "fft": "fft fft2 fftfreq fftn fftshift hfft hfft2 hfftn ifft ifft2 ifftn ifftshift ihfft ihfft2 ihfftn irfft "
    "irfft2 irfftn rfft rfft2 rfftfreq rfftn",
    "special": "expm1 log1p round sinc",
}
_IN_MODULES_AS = {f"{home}_{name}": (home, name) for home, names in _IN_MODULES.items() for name in names.split()}

# engine.nn.functional.NAME does
_FUNCTIONAL = frozenset(
    "linear one_hot gelu softplus log_sigmoid mish hardswish hardsigmoid silu relu6 leaky_relu".split()
)
_FUNCTIONAL_AS = {"log_sigmoid": "logsigmoid"}

_EXTENSIONS = {
    "torchvision": frozenset(
        ("nms", "roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d", "box_iou_rotated")
    ),
}

# Arguments that say where and how a result is kept, not what it is: the engine has one way.
_KEPT = {"layout", "pin_memory", "implicit"}


def drops(keyword: str) -> bool:
    """Whether a keyword argument is left out of the call: strided memory and ordinary pages are all there is."""
    return keyword in _KEPT


@functools.cache
def find(namespace: str, name: str) -> Callable[..., Any] | None:
    """The function that stands for `namespace::name`, or None if the list has no such operator."""
    if namespace != "aten":
        if namespace == "prim":
            return python_operators.PRIM.get(name)
        if name in _EXTENSIONS.get(namespace, ()):
            return getattr(library_operators.OpNamespace(namespace), name)
        return None
    own = python_operators.ATEN.get(name)
    if own is not None:
        return own
    if name in fused_operators.FUSED:
        return fused_operators.FUSED[name]
    if name in fused_operators.LATER:
        return fused_operators.later(name)
    if name in _DIRECT:
        return getattr(facade(), name, None)
    if name in _METHODS:
        return getattr(torch.Tensor, name, None)
    if name in _IN_MODULES_AS:
        home, attribute = _IN_MODULES_AS[name]
        return getattr(importlib.import_module(f"engine.{home}"), attribute, None)
    if name in _FUNCTIONAL:
        return getattr(F, _FUNCTIONAL_AS.get(name, name), None)
    return None


@functools.cache
def find_into(name: str) -> Callable[..., Any] | None:
    """The function that stands for the form of `aten::name` which stores its result into the argument `out`."""
    function = torch.neg if name == "neg" else find("aten", name)
    if function is None or not any(p.name == "out" for form in forms(f"aten::{name}") for p in form.parameters):
        return None

    def into(*args: Any, out: Any, **named: Any) -> Any:
        return store(out, name, function, *args, **named)

    return into


def why_not(namespace: str, name: str) -> str:
    """One sentence on an operator that is not on the list."""
    if namespace in ("quantized", "_quantized", "fbgemm") or "quantize" in name:
        return f"the operator {namespace}::{name} works on quantized tensors, which the engine does not have"
    return f"the operator {namespace}::{name} is not on the list of those that an archive may call"
