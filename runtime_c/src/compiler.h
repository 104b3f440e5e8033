/* What the compiler is told beside the code. Every name of the runtime is static but those that it and the
 * generated tables have of each other, which are LINKED. A shared library hides them: it is linked from two
 * units, and the build keeps the runtime's object for the next one. An archive is one unit, where they are
 * static like all others, so that archives of several libraries in one program never collide. */
#ifndef TILEC_COMPILER_H_
#define TILEC_COMPILER_H_

#define LOCAL static __attribute__((unused))
#ifdef TILEC_STATIC
#define LINKED      LOCAL
#define LINKED_DATA LOCAL
#else
#define LINKED      __attribute__((visibility("hidden")))
#define LINKED_DATA extern LINKED
#endif
#define KERNELS_CALL __attribute__((weak, visibility("hidden")))  /* of two archives one serves both */
#define INLINE       static inline __attribute__((always_inline)) /* a step of every call */
#define APART        __attribute__((noinline))       /* with a frame of its own, which few calls need */
#define COLD         __attribute__((cold, noinline)) /* kept away from what warm calls run */
#define PRINTF_LIKE(format_at, args_at) __attribute__((format(printf, format_at, args_at)))
#define LIKELY(x)                       __builtin_expect(!!(x), 1)
#define UNLIKELY(x)                     __builtin_expect(!!(x), 0)

#endif
