"""The part of oneDNN's C API v3 that is used: declarations for cffi, and the constants of its headers.

`make stubs` writes `_declared.py` from the declarations.  Names are the library's without `dnnl_`.  Opaque handles are
`void *`; no value here has changed within v3 (https://uxlfoundation.github.io/oneDNN/, dnnl.h, dnnl_types.h,
dnnl_common_types.h).
"""

from __future__ import annotations

DECLARATIONS = """
typedef int64_t dims_t[12];
typedef struct { int major, minor, patch; const char *hash; unsigned cpu_runtime, gpu_runtime; } version_t;
typedef struct { int arg; void *memory; } exec_arg_t;
const version_t *dnnl_version(void);
int dnnl_get_effective_cpu_isa(void);
int dnnl_engine_create(void **engine, int kind, size_t index);
int dnnl_stream_create(void **stream, void *engine, unsigned flags);
int dnnl_stream_wait(void *stream);
int dnnl_memory_desc_create_with_strides(void **md, int ndims, const int64_t *dims, int type, const int64_t *strides);
int dnnl_memory_desc_create_with_tag(void **md, int ndims, const int64_t *dims, int type, int tag);
size_t dnnl_memory_desc_get_size(const void *md);
int dnnl_memory_desc_equal(const void *a, const void *b);
int dnnl_memory_desc_destroy(void *md);
int dnnl_memory_create(void **memory, const void *md, void *engine, void *handle);
int dnnl_memory_set_data_handle(void *memory, void *handle);
int dnnl_memory_destroy(void *memory);
int dnnl_primitive_create(void **primitive, const void *pd);
int dnnl_primitive_execute(const void *primitive, void *stream, int nargs, const exec_arg_t *args);
int dnnl_primitive_destroy(void *primitive);
int dnnl_primitive_desc_query(const void *pd, int what, int index, void *result);
const void *dnnl_primitive_desc_query_md(const void *pd, int what, int index);
int dnnl_primitive_desc_destroy(void *pd);
int dnnl_primitive_attr_create(void **attr);
int dnnl_primitive_attr_destroy(void *attr);
int dnnl_primitive_attr_set_scratchpad_mode(void *attr, int mode);
int dnnl_primitive_attr_set_post_ops(void *attr, const void *post_ops);
int dnnl_primitive_attr_set_scales_mask(void *attr, int arg, int mask);
int dnnl_post_ops_create(void **post_ops);
int dnnl_post_ops_destroy(void *post_ops);
int dnnl_post_ops_append_eltwise(void *post_ops, int alg, float alpha, float beta);
int dnnl_post_ops_append_sum(void *post_ops, float scale, int32_t zero_point, int type);
int dnnl_post_ops_append_binary(void *post_ops, int alg, const void *md);
int dnnl_convolution_forward_primitive_desc_create(void **pd, void *engine, int prop, int alg, const void *src,
    const void *weights, const void *bias, const void *dst, const int64_t *strides, const int64_t *dilates,
    const int64_t *padding_l, const int64_t *padding_r, const void *attr);
int dnnl_deconvolution_forward_primitive_desc_create(void **pd, void *engine, int prop, int alg, const void *src,
    const void *weights, const void *bias, const void *dst, const int64_t *strides, const int64_t *dilates,
    const int64_t *padding_l, const int64_t *padding_r, const void *attr);
int dnnl_convolution_backward_data_primitive_desc_create(void **pd, void *engine, int alg, const void *diff_src,
    const void *weights, const void *diff_dst, const int64_t *strides, const int64_t *dilates,
    const int64_t *padding_l, const int64_t *padding_r, const void *hint, const void *attr);
int dnnl_convolution_backward_weights_primitive_desc_create(void **pd, void *engine, int alg, const void *src,
    const void *diff_weights, const void *diff_bias, const void *diff_dst, const int64_t *strides,
    const int64_t *dilates, const int64_t *padding_l, const int64_t *padding_r, const void *hint, const void *attr);
int dnnl_batch_normalization_forward_primitive_desc_create(void **pd, void *engine, int prop, const void *src,
    const void *dst, float epsilon, unsigned flags, const void *attr);
int dnnl_batch_normalization_backward_primitive_desc_create(void **pd, void *engine, int prop, const void *diff_src,
    const void *diff_dst, const void *src, float epsilon, unsigned flags, const void *hint, const void *attr);
int dnnl_layer_normalization_forward_primitive_desc_create(void **pd, void *engine, int prop, const void *src,
    const void *dst, const void *stat, float epsilon, unsigned flags, const void *attr);
int dnnl_layer_normalization_backward_primitive_desc_create(void **pd, void *engine, int prop, const void *diff_src,
    const void *diff_dst, const void *src, const void *stat, float epsilon, unsigned flags, const void *hint,
    const void *attr);
int dnnl_pooling_forward_primitive_desc_create(void **pd, void *engine, int prop, int alg, const void *src,
    const void *dst, const int64_t *strides, const int64_t *kernel, const int64_t *dilation,
    const int64_t *padding_l, const int64_t *padding_r, const void *attr);
int dnnl_pooling_backward_primitive_desc_create(void **pd, void *engine, int alg, const void *diff_src,
    const void *diff_dst, const int64_t *strides, const int64_t *kernel, const int64_t *dilation,
    const int64_t *padding_l, const int64_t *padding_r, const void *hint, const void *attr);
int dnnl_softmax_forward_primitive_desc_create(void **pd, void *engine, int prop, int alg, const void *src,
    const void *dst, int axis, const void *attr);
int dnnl_softmax_backward_primitive_desc_create(void **pd, void *engine, int alg, const void *diff_src,
    const void *diff_dst, const void *dst, int axis, const void *hint, const void *attr);
int dnnl_eltwise_forward_primitive_desc_create(void **pd, void *engine, int prop, int alg, const void *src,
    const void *dst, float alpha, float beta, const void *attr);
int dnnl_eltwise_backward_primitive_desc_create(void **pd, void *engine, int alg, const void *diff_src,
    const void *diff_dst, const void *data, float alpha, float beta, const void *hint, const void *attr);
int dnnl_matmul_primitive_desc_create(void **pd, void *engine, const void *src, const void *weights,
    const void *bias, const void *dst, const void *attr);
int dnnl_binary_primitive_desc_create(void **pd, void *engine, int alg, const void *src0, const void *src1,
    const void *dst, const void *attr);
int dnnl_prelu_forward_primitive_desc_create(void **pd, void *engine, int prop, const void *src, const void *weights,
    const void *dst, const void *attr);
int dnnl_prelu_backward_primitive_desc_create(void **pd, void *engine, const void *src, const void *weights,
    const void *diff_src, const void *diff_weights, const void *diff_dst, const void *hint, const void *attr);
int dnnl_reorder_primitive_desc_create(void **pd, const void *src, void *src_engine, const void *dst,
    void *dst_engine, const void *attr);
int dnnl_concat_primitive_desc_create(void **pd, void *engine, const void *dst, int n, int dim,
    void *const *srcs, const void *attr);
int dnnl_lstm_forward_primitive_desc_create(void **pd, void *engine, int prop, int direction, const void *src_layer,
    const void *src_iter, const void *src_iter_c, const void *weights_layer, const void *weights_iter,
    const void *weights_peephole, const void *weights_projection, const void *bias, const void *dst_layer,
    const void *dst_iter, const void *dst_iter_c, unsigned flags, const void *attr);
int dnnl_lbr_gru_forward_primitive_desc_create(void **pd, void *engine, int prop, int direction, const void *src_layer,
    const void *src_iter, const void *weights_layer, const void *weights_iter, const void *bias,
    const void *dst_layer, const void *dst_iter, unsigned flags, const void *attr);
int dnnl_sgemm(char transa, char transb, int64_t M, int64_t N, int64_t K, float alpha, const void *A, int64_t lda,
    const void *B, int64_t ldb, float beta, void *C, int64_t ldc);
int dnnl_gemm_u8s8s32(char transa, char transb, char offsetc, int64_t M, int64_t N, int64_t K, float alpha,
    const void *A, int64_t lda, uint8_t ao, const void *B, int64_t ldb, int8_t bo, float beta, void *C, int64_t ldc,
    const int32_t *co);
void omp_set_num_threads(int count);
int omp_get_thread_num(void);
int sched_getcpu(void);
void GOMP_parallel(void *function, void *data, unsigned threads, unsigned flags);
"""

CPU, IN_ORDER = 1, 1
INSTRUCTIONS = {  # dnnl_cpu_isa_t: the name that ONEDNN_MAX_CPU_ISA takes
    0x1: "SSE41",
    0x3: "AVX",
    0x7: "AVX2",
    0xF: "AVX2_VNNI",
    0x1F: "AVX2_VNNI_2",
    0x27: "AVX512_CORE",
    0x67: "AVX512_CORE_VNNI",
    0xE7: "AVX512_CORE_BF16",
    0x1EF: "AVX512_CORE_FP16",
    0xFEF: "AVX512_CORE_AMX",
    0x1FEF: "AVX512_CORE_AMX_FP16",
}
RUNTIMES = {1: "sequential", 2: "OpenMP", 4: "TBB", 8: "thread pool", 256: "OpenCL", 512: "SYCL"}
F16, BF16, F32, S8, ANY = 1, 2, 3, 5, 1
AS_RESULT = 0  # type of a sum: the one of the result
TRAINING, INFERENCE, BACKWARD, BACKWARD_DATA = 64, 96, 128, 160
CONVOLUTION_DIRECT = 1
DECONVOLUTION_DIRECT = 10
POOLING_MAX, AVERAGE_WITH_PADDING, AVERAGE_WITHOUT_PADDING = 0x1FF, 0x2FF, 0x3FF
SOFTMAX, LOG_SOFTMAX = 0x30000, 0x30001
RELU, TANH, ELU, LINEAR, EXP, GELU_TANH, SWISH, LOGISTIC = (
    0x20,
    0x21,
    0x22,
    0x26,
    0x2A,
    0x2B,
    0x2C,
    0x29,
)
GELU_ERF, CLIP, HARDSWISH, MISH = 0x31, 0x2E, 0x34, 0x33
SOFT_RELU, HARDSIGMOID, CLIP_INSIDE = 0x27, 0x28, 0x2F
# backward given the result instead of the input
RELU_RESULT, TANH_RESULT, LOGISTIC_RESULT = 0x100, 0x101, 0x104
BINARY_ADD, BINARY_MUL, BINARY_SUB = 0x1FFF0, 0x1FFF1, 0x1FFF5
GLOBAL_STATS, USE_SCALE, USE_SHIFT = 1, 2, 4
USER_SCRATCHPAD = 1
FORWARDS, BACKWARDS = 1, 2  # in time
IMPLEMENTATION = 8  # queries
WEIGHTS_MD, DIFF_WEIGHTS_MD, WORKSPACE_MD, SCRATCHPAD_MD, ARGUMENT_MD = 131, 132, 135, 136, 255
# arguments of a primitive
SRC, SRC_1, DST, WEIGHTS, BIAS, MEAN, VARIANCE, SCALE, SHIFT = 1, 2, 17, 33, 41, 49, 50, 51, 52
WORKSPACE, SCRATCHPAD = 64, 80
DIFF_SRC, DIFF_DST, DIFF_WEIGHTS, DIFF_BIAS, DIFF_SCALE, DIFF_SHIFT = 129, 145, 161, 169, 255, 256
MULTIPLE_SRC, SCALES, POST_OP = 1024, 4096, 32768
SRC_2, DST_1, DST_2, WEIGHTS_1 = 3, 18, 19, 34
