// Threads that work on one row together: a warp, a whole block, or (columns) the threads of one x.
// All of them get the result.  `scratch` is shared memory of 32 values (columns: blockDim.x * blockDim.y).

#ifndef ENGINE_GROUP
#define ENGINE_GROUP

#define ALL_LANES 0xffffffffu

struct by_sum { template <class T> static __device__ __forceinline__ T of(T a, T b) { return a + b; } };
struct by_product { template <class T> static __device__ __forceinline__ T of(T a, T b) { return a * b; } };
struct by_max { template <class T> static __device__ __forceinline__ T of(T a, T b) { return nan_max(a, b); } };
struct by_min { template <class T> static __device__ __forceinline__ T of(T a, T b) { return nan_min(a, b); } };
struct by_any { template <class T> static __device__ __forceinline__ T of(T a, T b) { return a || b; } };
struct by_all { template <class T> static __device__ __forceinline__ T of(T a, T b) { return a && b; } };

// a value with its place: of equal ones the first place, as in numpy; nan is more than all and less than all
template <class T> struct placed { T value; int64 place; };
struct by_argmax {
    template <class T> static __device__ __forceinline__ placed<T> of(placed<T> a, placed<T> b) {
        bool nan_a = a.value != a.value, nan_b = b.value != b.value;
        bool first = nan_a || nan_b ? (nan_a && (!nan_b || a.place < b.place))
                                    : (a.value > b.value || (a.value == b.value && a.place < b.place));
        return first ? a : b;
    }
};
struct by_argmin {
    template <class T> static __device__ __forceinline__ placed<T> of(placed<T> a, placed<T> b) {
        bool nan_a = a.value != a.value, nan_b = b.value != b.value;
        bool first = nan_a || nan_b ? (nan_a && (!nan_b || a.place < b.place))
                                    : (a.value < b.value || (a.value == b.value && a.place < b.place));
        return first ? a : b;
    }
};

template <class T> static __device__ __forceinline__ T from_lane(T x, int mask) { return __shfl_xor_sync(ALL_LANES, x, mask); }
template <> __device__ __forceinline__ bool from_lane(bool x, int mask) { return __shfl_xor_sync(ALL_LANES, (int)x, mask); }
template <class T> static __device__ __forceinline__ placed<T> from_lane(placed<T> x, int mask) {
    placed<T> made;
    made.value = from_lane(x.value, mask);
    made.place = from_lane(x.place, mask);
    return made;
}

template <class By, class T> static __device__ __forceinline__ T warp_reduce(T x) {
    for (int mask = 16; mask; mask >>= 1) x = By::of(x, from_lane(x, mask));
    return x;
}

template <class By, class T> static __device__ __forceinline__ T block_reduce(T x, T *scratch) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = (blockDim.x + 31) >> 5;
    x = warp_reduce<By>(x);
    __syncthreads();  // who still reads the result before this one
    if (lane == 0) scratch[warp] = x;
    __syncthreads();
    x = scratch[0];
    for (int i = 1; i < warps; ++i) x = By::of(x, scratch[i]);
    return x;
}

template <class By, class T> static __device__ __forceinline__ T column_reduce(T x, T *scratch) {
    __syncthreads();
    scratch[threadIdx.y * blockDim.x + threadIdx.x] = x;
    __syncthreads();
    x = scratch[threadIdx.x];
    for (unsigned i = 1; i < blockDim.y; ++i) x = By::of(x, scratch[i * blockDim.x + threadIdx.x]);
    return x;
}

#endif
