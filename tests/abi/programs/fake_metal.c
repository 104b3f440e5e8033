/* A stand-in for the Objective-C run time and Metal over host memory (x86-64:
 * arguments behind the sixth are read from the stack). Sources and launches go
 * to the function whose address is in FAKE_METAL_DRIVER; what was done with
 * queues is written down. FAKE_METAL = the name of the device; those that begin
 * with "Apple" run Metal 3. */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BUFFERS = 31 };
typedef struct object {
  const char *kind, *text;
  struct object *of;
} object;
typedef struct buffer {
  object head;
  char *data;
  int owned;
} buffer;
/* symbol NULL: compiles. */
typedef int (*driver)(const char *source, const char *symbol,
                      const unsigned *shape, void **buffers, int count);

static object text_object = {"string"}, failure = {"error"}, queues = {"queue"},
              device = {"device"};
static object commands = {"commands"}, encoder = {"encoder"},
              options = {"options"};
static object *pipeline;
static void *bound[MOST_BUFFERS];
static int64_t numbers[256];
static char events[4096];
static int fast_math = 1;

const char *fake_metal_events(void) { return events; }
object *fake_metal_object(const char *kind) {
  return !strcmp(kind, "queue")      ? &queues
         : !strcmp(kind, "commands") ? &commands
                                     : &encoder;
}
void fake_metal_forget(void) { *events = 0; }
buffer *fake_metal_buffer(void *data) {
  buffer *made = malloc(sizeof(*made));
  *made = (buffer){{"buffer"}, data, 0};
  return made;
}

/* When there is no room, all but the last ones are forgotten. */
static void note(const char *event) {
  size_t length = strlen(events);
  if (length > sizeof(events) - 64)
    memmove(events, events + length - 64, 65);
  strcat(events, event);
  strcat(events, " ");
}
/* None above 1 MiB. */
static buffer *new_buffer(uintptr_t size, uintptr_t mode) {
  if (mode != 0 || size > 1 << 20)
    return NULL;
  buffer *made = fake_metal_buffer(aligned_alloc(4096, (size + 4095) & ~4095ul));
  return made->owned = 1, made;
}
static void release(object *old) {
  if (strcmp(old->kind, "buffer") || !((buffer *)old)->owned)
    return;
  free(((buffer *)old)->data);
  free(old);
}
static driver run(void) {
  return (driver)strtoull(getenv("FAKE_METAL_DRIVER"), NULL, 10);
}
static const char *name(void) {
  return getenv("FAKE_METAL") ? getenv("FAKE_METAL") : "Apple M1";
}
static object *make(const char *kind, const char *text, object *of) {
  object *made = malloc(sizeof(*made));
  *made = (object){kind, text, of};
  return made;
}
static object *string(const char *text) { return make("string", text, NULL); }

object *MTLCreateSystemDefaultDevice(void) { return *name() ? &device : NULL; }
object *objc_getClass(const char *class_name) {
  return make("class", class_name, NULL);
}
const char *sel_registerName(const char *selector) { return strdup(selector); }
void *objc_autoreleasePoolPush(void) { return &device; }
void objc_autoreleasePoolPop(void *pool) { (void)pool; }

static object *compile(object *source, object **error) {
  note(fast_math ? "fast" : "compile");
  if (!run()(source->text, NULL, NULL, NULL, 0))
    return make("library", source->text, NULL);
  *error = &failure;
  return NULL;
}

static int responds(object *self, const char *selector) {
  if (!strcmp(selector, "setComputePipelineState:"))
    return self == &encoder;
  if (!strcmp(selector, "computeCommandEncoder"))
    return self == &commands;
  return self == &queues && !strcmp(selector, "commandBuffer");
}

static uintptr_t dispatch(const uintptr_t *sizes) {
  unsigned shape[6];
  for (int i = 0; i < 6; i++)
    shape[i] = (unsigned)sizes[i];
  int count = MOST_BUFFERS;
  while (count > 0 && !bound[count - 1])
    count--;
  note(run()(pipeline->of->of->text, pipeline->of->text, shape, bound, count)
           ? "failed"
           : "run");
  return 0;
}

static void set_buffer(buffer *given, uintptr_t offset, uintptr_t place) {
  bound[place] = given ? given->data + offset : NULL;
}

#define IS(text) (!strcmp(selector, text))
uintptr_t objc_msgSend(object *self, const char *selector, uintptr_t a,
                       uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t s0,
                       uintptr_t s1, uintptr_t s2, uintptr_t s3, uintptr_t s4,
                       uintptr_t s5) {
  (void)d;
  if (IS("supportsFamily:"))
    return !strncmp(name(), "Apple", 5) && (a == 1007 || a == 5001);
  if (IS("newBufferWithLength:options:"))
    return (uintptr_t)new_buffer(a, b);
  if (IS("contents"))
    return (uintptr_t)((buffer *)self)->data;
  if (IS("name"))
    return (uintptr_t)string(name());
  if (IS("UTF8String"))
    return (uintptr_t)self->text;
  if (IS("stringWithUTF8String:"))
    return (uintptr_t)string((const char *)a);
  if (IS("new"))
    return (uintptr_t)&options;
  if (IS("setFastMathEnabled:"))
    return fast_math = (char)a, 0;
  if (IS("setLanguageVersion:"))
    return 0;
  if (IS("newCommandQueue"))
    return (uintptr_t)&queues;
  if (IS("newLibraryWithSource:options:error:"))
    return (uintptr_t)compile((object *)a, (object **)c);
  if (IS("newFunctionWithName:"))
    return (uintptr_t)make("function", ((object *)a)->text, self);
  if (IS("newComputePipelineStateWithFunction:error:"))
    return (uintptr_t)make("pipeline", NULL, (object *)a);
  if (IS("threadExecutionWidth"))
    return getenv("FAKE_METAL_LANES") ? 16 : 32;
  if (IS("maxTotalThreadsPerThreadgroup"))
    return 1024;
  if (IS("localizedDescription"))
    return (uintptr_t)string("it is no source");
  if (IS("respondsToSelector:"))
    return (uintptr_t)responds(self, (const char *)a);
  if (IS("commandBuffer"))
    return note("buffer"), (uintptr_t)&commands;
  if (IS("computeCommandEncoder"))
    return note("encoder"), (uintptr_t)&encoder;
  if (IS("setComputePipelineState:"))
    return pipeline = (object *)a, 0;
  if (IS("setBuffer:offset:atIndex:"))
    return set_buffer((buffer *)a, b, c), 0;
  if (IS("setBytes:length:atIndex:"))
    return memcpy(numbers, (void *)a, b), bound[c] = numbers,
                                          bound[c + 1] = NULL, 0;
  if (IS("dispatchThreadgroups:threadsPerThreadgroup:"))
    return dispatch((uintptr_t[]){s0, s1, s2, s3, s4, s5});
  if (IS("endEncoding"))
    return note("end"), 0;
  if (IS("commit"))
    return note("commit"), 0;
  if (IS("waitUntilCompleted"))
    return note("wait"), 0;
  if (IS("status"))
    return getenv("FAKE_METAL_FAILS") ? 5 : 4;
  if (IS("error"))
    return (uintptr_t)&failure;
  if (IS("release"))
    return release(self), 0;
  fprintf(stderr, "nobody answers %s\n", selector);
  abort();
}
