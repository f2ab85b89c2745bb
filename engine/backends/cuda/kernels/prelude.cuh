// What every generated kernel reads: types, conversions and the few functions that CUDA's mathematics lacks.
// Compiled by NVRTC without any header of NVIDIA's, and by g++ after shim.h.

#ifndef ENGINE_PRELUDE
#define ENGINE_PRELUDE

typedef signed char int8;
typedef unsigned char uint8;
typedef short int16;
typedef unsigned short uint16;
typedef int int32;
typedef unsigned int uint32;
typedef long long int64;
typedef unsigned long long uint64;

struct float16 {
    uint16 bits;
};
struct bfloat16 {
    uint16 bits;
};

static __device__ __forceinline__ float bits_float(uint32 bits) {
#ifdef __CUDA_ARCH__
    return __uint_as_float(bits);
#else
    union { uint32 u; float f; } both; both.u = bits; return both.f;
#endif
}
static __device__ __forceinline__ uint32 float_bits(float x) {
#ifdef __CUDA_ARCH__
    return __float_as_uint(x);
#else
    union { uint32 u; float f; } both; both.f = x; return both.u;
#endif
}

static __device__ __forceinline__ float widened(bfloat16 x) { return bits_float((uint32)x.bits << 16); }
static __device__ __forceinline__ float widened(float16 x) {
#ifdef __CUDA_ARCH__
    float made;
    asm("cvt.f32.f16 %0, %1;" : "=f"(made) : "h"(x.bits));
    return made;
#else
    uint32 sign = (uint32)(x.bits & 0x8000) << 16, rest = (uint32)(x.bits & 0x7fff) << 13;
    if (rest >= 0x0f800000u) return bits_float(sign | rest | 0x7f800000u);         // infinite or nan
    return bits_float(sign | float_bits(bits_float(rest) * 5.192296858534828e33f)); // times 2^112: subnormal ones too
#endif
}
template <class T> static __device__ __forceinline__ T widened(T x) { return x; }

// to the type that an array holds; 16-bit floats are rounded to nearest, ties to even
template <class T> struct narrowed {
    template <class S> static __device__ __forceinline__ T of(S x) { return (T)x; }
};
template <> struct narrowed<bfloat16> {
    static __device__ __forceinline__ bfloat16 of(float x) {
        uint32 u = float_bits(x);
        bfloat16 made;
        made.bits = x != x ? (uint16)((u >> 16) | 0x40) : (uint16)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
        return made;
    }
};
template <> struct narrowed<float16> {
    static __device__ __forceinline__ float16 of(float x) {
        float16 made;
#ifdef __CUDA_ARCH__
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(made.bits) : "f"(x));
#else
        uint32 u = float_bits(x), sign = (u >> 16) & 0x8000, rest = u & 0x7fffffff;
        if (rest > 0x7f800000) made.bits = (uint16)(sign | 0x7e00);
        else if (rest >= 0x477ff000) made.bits = (uint16)(sign | 0x7c00);
        else if (rest < 0x38800000)  // subnormal: the sum with 0.5 rounds to multiples of 2^-24
            made.bits = (uint16)(sign | (float_bits(bits_float(rest) + 0.5f) - 0x3f000000u));
        else made.bits = (uint16)(sign | ((rest - 0x38000000 + 0xfff + ((rest >> 13) & 1)) >> 13));
#endif
        return made;
    }
};

// sixteen bytes at once, where an array lies as the elements are counted
template <class T, int N> struct alignas(sizeof(T) * N > 16 ? 16 : sizeof(T) * N) several {
    T at[N];
};

template <class T> static __device__ __forceinline__ T nan_max(T a, T b) { return a != a ? a : b != b ? b : a > b ? a : b; }
template <class T> static __device__ __forceinline__ T nan_min(T a, T b) { return a != a ? a : b != b ? b : a < b ? a : b; }
template <class T> static __device__ __forceinline__ T plain_max(T a, T b) { return a > b ? a : b; }
template <class T> static __device__ __forceinline__ T plain_min(T a, T b) { return a < b ? a : b; }
template <class T> static __device__ __forceinline__ T sign_of(T a) { return a != a ? a : (T)((a > (T)0) - (a < (T)0)); }
static __device__ __forceinline__ float infinite(float) { return bits_float(0x7f800000u); }
static __device__ __forceinline__ double infinite(double) { return (double)bits_float(0x7f800000u); }
template <class T> static __device__ __forceinline__ bool is_inf(T a) { return a == infinite(a) || a == -infinite(a); }
template <class T> static __device__ __forceinline__ bool is_finite(T a) { return a - a == a - a; }
static __device__ __forceinline__ uint64 high_product(uint64 a, uint64 b) {
#ifdef __CUDA_ARCH__
    return __umul64hi(a, b);
#else
    return (uint64)(((unsigned __int128)a * b) >> 64);
#endif
}

// numpy's remainder has the sign of the divisor
template <class T> static __device__ __forceinline__ T float_remainder(T a, T b, T left) {
    if (left == 0) return b < 0 ? -(T)0 : (T)0;
    return (left < 0) != (b < 0) ? left + b : left;
}

static __device__ __forceinline__ void add_atomically(float *at, float x) { atomicAdd(at, x); }
static __device__ __forceinline__ void add_atomically(double *at, double x) { atomicAdd(at, x); }
static __device__ __forceinline__ void add_atomically(int32 *at, int32 x) { atomicAdd(at, x); }
static __device__ __forceinline__ void add_atomically(int64 *at, int64 x) { atomicAdd((uint64 *)at, (uint64)x); }

#endif
