// CUDA C for g++: the source of a kernel, unchanged, as a function that shim.cpp runs thread by thread.
// Threads of a block are fibers; barriers and shuffles are where one gives way to the next.

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__ __restrict
// one copy a kernel, in a section of its own so that it can be poisoned before every block
#define __shared__ static __attribute__((section("shim_shared"), used))

struct shim_dim { unsigned x, y, z; };

struct shim_state {  // of shim.cpp
    shim_dim thread, block, threads, blocks;
    void (*wait_block)();
    void (*wait_warp)();
    unsigned char (*slots)[16];  // what each thread of the block offers in a shuffle
    unsigned lane;               // the number of the thread within its block
    int (*run)(void (*)(void **), void **, char *, char *, int, int);
};
static shim_state *shim;
extern "C" void shim_attach(shim_state *state) { shim = state; }
// weak, so that a module without shared memory links
extern "C" __attribute__((weak)) char __start_shim_shared[];
extern "C" __attribute__((weak)) char __stop_shim_shared[];

#define threadIdx (shim->thread)
#define blockIdx (shim->block)
#define blockDim (shim->threads)
#define gridDim (shim->blocks)

static inline void __syncthreads() { shim->wait_block(); }
static inline void __syncwarp(unsigned = 0xffffffffu) { shim->wait_warp(); }
template <class T> static inline T __shfl_xor_sync(unsigned, T value, int mask) {
    unsigned me = shim->lane, other = (me & ~31u) | ((me ^ mask) & 31u);
    *(T *)shim->slots[me] = value;
    shim->wait_warp();
    T found = *(T *)shim->slots[other];
    shim->wait_warp();
    return found;
}
template <class T> static inline T atomicAdd(T *at, T value) { T old = *at; *at = old + value; return old; }

#define SHIM_F1(name) extern "C" float name##f(float); extern "C" double name(double);
#define SHIM_F2(name) extern "C" float name##f(float, float); extern "C" double name(double, double);
SHIM_F1(exp) SHIM_F1(exp2) SHIM_F1(expm1) SHIM_F1(log) SHIM_F1(log2) SHIM_F1(log10) SHIM_F1(log1p) SHIM_F1(sqrt)
SHIM_F1(sin) SHIM_F1(cos) SHIM_F1(tan) SHIM_F1(asin) SHIM_F1(acos) SHIM_F1(atan) SHIM_F1(sinh) SHIM_F1(cosh)
SHIM_F1(tanh) SHIM_F1(asinh) SHIM_F1(acosh) SHIM_F1(atanh) SHIM_F1(erf) SHIM_F1(erfc) SHIM_F1(floor) SHIM_F1(ceil)
SHIM_F1(trunc) SHIM_F1(rint) SHIM_F1(fabs) SHIM_F1(cbrt)
SHIM_F2(pow) SHIM_F2(fmod) SHIM_F2(atan2) SHIM_F2(hypot) SHIM_F2(copysign) SHIM_F2(nextafter)

template <int... I> struct shim_places {};
template <int N, int... I> struct shim_count : shim_count<N - 1, N - 1, I...> {};
template <int... I> struct shim_count<0, I...> { typedef shim_places<I...> type; };
template <class... P, int... I> static inline void shim_spread(void (*kernel)(P...), void **args, shim_places<I...>) {
    kernel(*(P *)args[I]...);
}
template <class... P> static inline void shim_call(void (*kernel)(P...), void **args) {
    shim_spread(kernel, args, typename shim_count<sizeof...(P)>::type());
}
// the number of arguments and the size of each, so that a wrong call is refused
template <class... P> static inline int shim_sizes(void (*)(P...), int *sizes) {
    int found[] = {(int)sizeof(P)..., 0}, count = sizeof...(P);
    for (int i = 0; i < count; ++i) sizes[i] = found[i];
    return count;
}
#define SHIM_KERNEL(name)                                                                              \
    static void shim_call_##name(void **args) { shim_call(name, args); }                               \
    extern "C" int shim_sizes_##name(int *sizes) { return shim_sizes(name, sizes); }                   \
    extern "C" int shim_launch_##name(void **args, int fibers, int backwards) {                        \
        return shim->run(shim_call_##name, args, __start_shim_shared, __stop_shim_shared, fibers, backwards); \
    }
