/* Registers the operators of the table when the library is loaded. They stay: torch has no time at which
 * nobody calls them any more. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "torch_api.h"

static void torch_define(const char* key, bool (*has)(const torch_op*)) {
  torch_library* library = NULL;
  if (torch.library_init_impl(op_domain, key, op_domain, 0, &library) != 0) return;
  for (size_t i = 0; i < sizeof(torch_ops) / sizeof(*torch_ops); i++)
    if (has(&torch_ops[i])) torch.library_impl(library, torch_ops[i].table.name, torch_ops[i].run);
}

static bool torch_is_on_cpu(const torch_op* op) { return op->on_cpu; }
static bool torch_is_on_cuda(const torch_op* op) { return op->on_cuda; }

/* Once for a process. Exported for programs that load these operators before torch: they call it again then.
 * Returns whether the operators are there. */
__attribute__((visibility("default"))) bool TORCH_REGISTER(void) {
  static atomic_flag begun = ATOMIC_FLAG_INIT;
  if (!op_is_of_this_build()) return false;
  if (!torch_find()) return false;
  if (atomic_flag_test_and_set(&begun)) return true;
  torch_library* library = NULL;
  if (torch.library_init_fragment(op_domain, op_domain, 0, &library) != 0) return false;
  for (size_t i = 0; i < sizeof(torch_ops) / sizeof(*torch_ops); i++)
    torch.library_def(library, torch_ops[i].schema);
  torch_define("CPU", torch_is_on_cpu);
  torch_define("CUDA", torch_is_on_cuda);
  return true;
}

__attribute__((constructor)) static void torch_loaded(void) {
  if (TORCH_REGISTER()) return;
  const char* why =
      op_is_of_this_build() ? "no libtorch of 2.8 or newer is loaded" : op_library()->last_error();
  fprintf(stderr, "%s: its operators are not registered yet: %s\n", op_domain, why);
}
