/* The part of the Objective-C run time and of Metal that the runtime calls, declared here so that a build
 * needs neither a compiler of Objective-C nor an SDK. */
#ifndef TILEC_METAL_API_H_
#define TILEC_METAL_API_H_
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct objc_object* metal_id;
typedef struct objc_selector* metal_selector;

/* MTLSize: three NSUInteger, passed by value. */
typedef struct metal_size {
  unsigned long width, height, depth;
} metal_size;

enum {
  METAL_FAMILY_APPLE7 = 1007, /* MTLGPUFamilyApple7: M1; simdgroup matrices */
  METAL_FAMILY_METAL3 = 5001, /* MTLGPUFamilyMetal3 */
  METAL_LANGUAGE_3_0 = 3 << 16,
  METAL_STATUS_ERROR = 5 /* MTLCommandBufferStatusError */
};

/* X(member of metal_api.selectors, selector) */
#define METAL_SELECTORS(X)                                     \
  X(buffer, "commandBuffer")                                   \
  X(commit, "commit")                                          \
  X(description, "localizedDescription")                       \
  X(run_blocks, "dispatchThreadgroups:threadsPerThreadgroup:") \
  X(encoder, "computeCommandEncoder")                          \
  X(end, "endEncoding")                                        \
  X(error, "error")                                            \
  X(library, "newLibraryWithSource:options:error:")            \
  X(function, "newFunctionWithName:")                          \
  X(most_threads, "maxTotalThreadsPerThreadgroup")             \
  X(name, "name")                                              \
  X(new_object, "new")                                         \
  X(pipeline, "newComputePipelineStateWithFunction:error:")    \
  X(queue, "newCommandQueue")                                  \
  X(release, "release")                                        \
  X(responds, "respondsToSelector:")                           \
  X(set_buffer, "setBuffer:offset:atIndex:")                   \
  X(set_bytes, "setBytes:length:atIndex:")                     \
  X(set_fast_math, "setFastMathEnabled:")                      \
  X(set_language, "setLanguageVersion:")                       \
  X(set_pipeline, "setComputePipelineState:")                  \
  X(status, "status")                                          \
  X(string, "stringWithUTF8String:")                           \
  X(supports, "supportsFamily:")                               \
  X(text, "UTF8String")                                        \
  X(wait, "waitUntilCompleted")                                \
  X(width, "threadExecutionWidth")

typedef struct metal_selectors {
#define X(member, name) metal_selector member;
  METAL_SELECTORS(X)
#undef X
} metal_selectors;

/* X(member of metal_api, symbol, result, parameters) */
#define METAL_FUNCTIONS(X)                                     \
  X(class_named, objc_getClass, metal_id, (const char*))       \
  X(selector, sel_registerName, metal_selector, (const char*)) \
  X(pool_push, objc_autoreleasePoolPush, void*, (void))        \
  X(pool_pop, objc_autoreleasePoolPop, void, (void*))

typedef struct metal_api {
#define X(member, symbol, result, parameters) result(*member) parameters;
  METAL_FUNCTIONS(X)
#undef X
  void (*send)(void); /* objc_msgSend: called as what it stands for */
  metal_id (*default_device)(void);
  metal_selectors selectors;
} metal_api;

#endif
