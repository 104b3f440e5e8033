// What a GPU can do: copies of memory, and products of tensor cores on operands that never leave registers
// (mma.sync) or shared memory (wgmma). PRODUCT and WGMMA are instances that tilec/backends/cuda/probe.py writes.
typedef unsigned int u32;
typedef unsigned long long u64;

// One 16-byte load and store a thread: what copies fastest.
extern "C" __global__ void copy(const uint4* source, uint4* target, u64 count) {
  u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) target[i] = source[i];
}

// Bits that are finite, below 2 and of either sign in every type: what tensor cores do costs as much power as usual.
__device__ u32 bits(u32 seed) {
  seed = (seed ^ 61u) ^ (seed >> 16), seed *= 9u, seed ^= seed >> 4, seed *= 0x27d4eb2du;
  return (seed ^ (seed >> 15)) & 0xbfbfbfbfu;
}

// Sums of one warp by mma.sync; ACCUMULATORS of them, so that instructions do not wait for one another.
#define ACCUMULATORS 8
#define PRODUCT(NAME, NUMBER, CONSTRAINT, INSTRUCTION)                                                   \
  extern "C" __global__ void NAME(NUMBER* out, int trips) {                                              \
    u32 a[4], b[2];                                                                                      \
    NUMBER d[ACCUMULATORS][4] = {};                                                                      \
    for (int i = 0; i < 4; i++) a[i] = bits(threadIdx.x * 8 + i);                                        \
    for (int i = 0; i < 2; i++) b[i] = bits(threadIdx.x * 8 + 4 + i);                                    \
    for (int trip = 0; trip < trips; trip++) {                                                           \
      _Pragma("unroll") for (int i = 0; i < ACCUMULATORS; i++)                                           \
        asm volatile(INSTRUCTION " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                \
                     : "+" CONSTRAINT(d[i][0]), "+" CONSTRAINT(d[i][1]), "+" CONSTRAINT(d[i][2]),        \
                       "+" CONSTRAINT(d[i][3])                                                           \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                \
    }                                                                                                    \
    NUMBER sum = 0;                                                                                      \
    for (int i = 0; i < ACCUMULATORS; i++) sum += d[i][0] + d[i][1] + d[i][2] + d[i][3];                 \
    if (sum == (NUMBER)12345) out[threadIdx.x] = sum;                                                    \
  }

// Sums of two warpgroups, tiles of 64 x 256 each, by wgmma: rows of 128 bytes, swizzled, so that one descriptor
// serves every type; 32 bytes of a row a step.
#define STEPS 4
__device__ u64 descriptor(const void* tile) {
  u32 address = (u32)__cvta_generic_to_shared(tile);
  return (u64)((address & 0x3ffffu) >> 4) | (u64)1 << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}
#define WGMMA(NAME, NUMBER, ISSUE)                                                                       \
  extern "C" __global__ void __launch_bounds__(256) NAME(NUMBER* out, int trips) {                       \
    __shared__ __align__(1024) u32 tiles[12 * 1024];                                                     \
    for (int i = threadIdx.x; i < 12 * 1024; i += 256) tiles[i] = bits(i);                               \
    asm volatile("fence.proxy.async;" ::: "memory");                                                     \
    __syncthreads();                                                                                     \
    u64 a = descriptor(tiles + (threadIdx.x / 128) * 2048), b = descriptor(tiles + 4096);                \
    NUMBER d[128] = {};                                                                                  \
    for (int trip = 0; trip < trips; trip++) {                                                           \
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");                                            \
      _Pragma("unroll") for (int step = 0; step < 2 * STEPS; step++)                                     \
        ISSUE(d, a + 2 * (step % STEPS), b + 2 * (step % STEPS));                                        \
      asm volatile("wgmma.commit_group.sync.aligned;\n wgmma.wait_group.sync.aligned 0;" ::: "memory");  \
    }                                                                                                    \
    NUMBER sum = 0;                                                                                      \
    for (int i = 0; i < 128; i++) sum += d[i];                                                           \
    if (sum == (NUMBER)12345) out[threadIdx.x] = sum;                                                    \
  }
