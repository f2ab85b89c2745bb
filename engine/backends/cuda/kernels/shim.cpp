// The scheduler of shim.h: runs the blocks of a grid one after another, the threads of a block as fibers.
//
// A thread runs until it waits: at a barrier of its block, or at a shuffle for its warp.  A barrier opens when every
// thread that has not ended waits at it.  If none can run and none opens, threads of one block wait at different
// barriers, which hangs a GPU: an error.  Warps are as far apart as barriers let them be.  Shared memory is filled with 0xff (nan, -1) before each block.
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

struct shim_dim { unsigned x, y, z; };
struct shim_state {
    shim_dim thread, block, threads, blocks;
    void (*wait_block)();
    void (*wait_warp)();
    unsigned char (*slots)[16];
    unsigned lane;
    int (*run)(void (*)(void **), void **, char *, char *, int, int);
};

namespace {
const unsigned MOST = 1024;
const size_t STACK = 1 << 16;
enum { READY, AT_BLOCK, AT_WARP, ENDED };

shim_state state;
unsigned char slots[MOST][16];
int where[MOST];
unsigned running;
char *stacks;
void (*body)(void **);
void **arguments;

#if defined(__x86_64__)
void *saved[MOST], *scheduler;
extern "C" void shim_switch(void **from, void *to);
asm(R"(
.text
.globl shim_switch
.hidden shim_switch
shim_switch:
    pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
    ret
)");
void leave() { shim_switch(&saved[running], scheduler); }
void enter(unsigned i) { shim_switch(&scheduler, saved[i]); }
void begin();
void prepare(unsigned i) {
    void **top = (void **)(stacks + (i + 1) * STACK) - 1;
    *top = nullptr;  // where begin would return to: the stack is aligned as after a call
    *--top = (void *)begin;
    top -= 6;
    memset(top, 0, 6 * sizeof(void *));
    saved[i] = top;
}
#else
ucontext_t saved[MOST], scheduler;
void leave() { swapcontext(&saved[running], &scheduler); }
void enter(unsigned i) { swapcontext(&scheduler, &saved[i]); }
void begin();
void prepare(unsigned i) {
    getcontext(&saved[i]);
    saved[i].uc_stack.ss_sp = stacks + i * STACK;
    saved[i].uc_stack.ss_size = STACK;
    saved[i].uc_link = nullptr;
    makecontext(&saved[i], begin, 0);
}
#endif

void begin() {
    body(arguments);
    where[running] = ENDED;
    leave();
}

void place(unsigned i) {
    state.lane = i;
    state.thread.x = i % state.threads.x;
    state.thread.y = i / state.threads.x % state.threads.y;
    state.thread.z = i / state.threads.x / state.threads.y;
}

void wait(int kind) {
    where[running] = kind;
    leave();
}
void wait_block() { wait(AT_BLOCK); }
void wait_warp() { wait(AT_WARP); }

// whether all of threads first..last that have not ended wait at `kind`; then they may go on
bool open(unsigned first, unsigned last, int kind) {
    bool any = false;
    for (unsigned i = first; i < last; ++i) {
        if (where[i] == kind) any = true;
        else if (where[i] != ENDED) return false;
    }
    if (any)
        for (unsigned i = first; i < last; ++i)
            if (where[i] == kind) where[i] = READY;
    return any;
}

// A warp runs as far as it can before the next one begins: what a barrier should have kept apart comes apart.
bool run_warp(unsigned first, unsigned last, int backwards) {
    bool any = false;
    for (;;) {
        bool ran = false;
        for (unsigned k = first; k < last; ++k) {
            unsigned i = backwards ? last - 1 - (k - first) : k;
            if (where[i] != READY) continue;
            running = i;
            place(i);
            ran = any = true;
            enter(i);
        }
        bool opened = open(first, last, AT_WARP);
        any |= opened;
        if (!ran && !opened) return any;
    }
}

int run_block(unsigned count, int backwards) {
    for (unsigned i = 0; i < count; ++i) {
        where[i] = READY;
        prepare(i);
    }
    unsigned warps = (count + 31) / 32;
    for (;;) {
        bool any = false, ended = true;
        for (unsigned k = 0; k < warps; ++k) {
            unsigned first = 32 * (backwards ? warps - 1 - k : k);
            any |= run_warp(first, first + 32 < count ? first + 32 : count, backwards);
        }
        any |= open(0, count, AT_BLOCK);
        for (unsigned i = 0; i < count; ++i) ended &= where[i] == ENDED;
        if (ended) return 0;
        if (!any) return 1;
    }
}

int run(void (*kernel)(void **), void **args, char *shared, char *shared_end, int fibers, int backwards) {
    unsigned count = state.threads.x * state.threads.y * state.threads.z;
    if (count == 0 || count > MOST) return 2;
    if (fibers && !stacks) {
        stacks = (char *)mmap(nullptr, MOST * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stacks == MAP_FAILED) { stacks = nullptr; return 3; }
    }
    body = kernel;
    arguments = args;
    for (state.block.z = 0; state.block.z < state.blocks.z; ++state.block.z)
        for (state.block.y = 0; state.block.y < state.blocks.y; ++state.block.y)
            for (state.block.x = 0; state.block.x < state.blocks.x; ++state.block.x) {
                if (shared) memset(shared, 0xff, shared_end - shared);
                if (fibers) {
                    if (int failed = run_block(count, backwards)) return failed;
                } else
                    for (unsigned k = 0; k < count; ++k) {
                        place(backwards ? count - 1 - k : k);
                        kernel(args);
                    }
            }
    return 0;
}
}  // namespace

extern "C" shim_state *shim_begin(unsigned *sizes) {  // grid, block
    state.blocks = {sizes[0], sizes[1], sizes[2]};
    state.threads = {sizes[3], sizes[4], sizes[5]};
    state.wait_block = wait_block;
    state.wait_warp = wait_warp;
    state.slots = slots;
    state.run = run;
    return &state;
}
