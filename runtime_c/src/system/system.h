/* What the runtime asks of the operating system, the only place where systems differ: system_linux.c,
 * system_macos.c and system_windows.c answer, system_posix.c what two of them share. */
#ifndef TILEC_SYSTEM_H_
#define TILEC_SYSTEM_H_
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compiler.h"
#include "dispatch/cpu.h"

#if defined(_WIN32)
typedef struct system_once {
  void* state; /* an INIT_ONCE */
} system_once;
typedef struct system_mutex {
  void* state; /* an SRWLOCK */
} system_mutex;
#define SYSTEM_ONCE        {NULL}
#define SYSTEM_MUTEX       {NULL}
#define SYSTEM_CUDA_DRIVER "nvcuda.dll"
#define SYSTEM_TVM_FFI     "tvm_ffi"
#else
#include <pthread.h>
typedef pthread_once_t system_once;
typedef pthread_mutex_t system_mutex;
#define SYSTEM_ONCE        PTHREAD_ONCE_INIT
#define SYSTEM_MUTEX       PTHREAD_MUTEX_INITIALIZER
#define SYSTEM_CUDA_DRIVER "libcuda.so.1"
#define SYSTEM_TVM_FFI     "libtvm_ffi"
#endif

/* ---- threads ---- */
LOCAL void system_run_once(system_once* once, void (*work)(void));
LOCAL void system_lock(system_mutex* mutex);
LOCAL void system_unlock(system_mutex* mutex);
LOCAL void system_renew(system_mutex* mutex);          /* in a forked child: its owner may not exist there */
LOCAL void system_wait(uint32_t* word, uint32_t seen); /* sleeps unless *word has changed; may wake early */
LOCAL void system_wake_one(uint32_t* word);
LOCAL void system_wake_all(uint32_t* word);
/* A thread that nobody joins, and that no signal of the program is delivered to. */
LOCAL bool system_start_thread(void (*run)(uint32_t), uint32_t argument);
/* Has `end` called with `value` when this thread ends, while its thread-local variables are still there; one
 * `end` for the whole library. False where the process has no room for that. */
LOCAL bool system_at_thread_end(void (*end)(void*), void* value);
LOCAL void system_after_fork(void (*child)(void));
LOCAL uint32_t system_cpus(void); /* that this process may use; 0: not known */
LOCAL void system_yield(void);    /* to threads that wait for this CPU */
LOCAL int system_cpu(void);       /* the one that this thread runs on; -1: not known */
/* Moves this thread to another CPU of those that it may use, which stay the same; not at all if that fails.
 */
LOCAL void system_leave_cpu(int cpu);

/* ---- the processor: what the instructions of a program cannot ask it ---- */
#if defined(__aarch64__)
LOCAL bool system_has(const cpu_test* test);
#endif
LOCAL bool system_permits(uint32_t component); /* asks for the use of a component of XCR0, for good */

/* ---- libraries ---- */
LOCAL void* system_open(const char* file, char* why, size_t size); /* NULL: `why` says why not */
/* One that the process has loaded, and keeps from now on: its file is named `stem`, and a dot, or a dash and
 * more, follow. */
LOCAL void* system_loaded(const char* stem, const char** path);
LOCAL void* system_symbol(void* library, const char* name); /* NULL: of the program itself */

/* ---- the rest ---- */
LOCAL int64_t system_now_ns(void);   /* of a clock that nobody sets */
LOCAL bool system_is_elevated(void); /* a setuid program: its environment is somebody else's */
LOCAL void* system_allocate(size_t align, size_t size); /* NULL where there is no memory */
LOCAL void system_free(void* memory);

#endif
