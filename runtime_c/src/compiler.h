/* What the compiler is told beside the code. A library is one translation unit: the generated tables include
 * runtime.c, so every name of the runtime is static and two libraries in one program, static or shared, never
 * collide. */
#ifndef TILEC_COMPILER_H_
#define TILEC_COMPILER_H_

#define LOCAL  static __attribute__((unused))
#define INLINE static inline __attribute__((always_inline)) /* a step of every call */
#define APART  __attribute__((noinline))       /* with a frame of its own, which few calls need */
#define COLD   __attribute__((cold, noinline)) /* kept away from what warm calls run */
#define PRINTF_LIKE(format_at, args_at) __attribute__((format(printf, format_at, args_at)))
#define LIKELY(x)                       __builtin_expect(!!(x), 1)
#define UNLIKELY(x)                     __builtin_expect(!!(x), 0)

#endif
