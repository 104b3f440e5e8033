/* Prints what the library's explain says of a kernel on the CPU: explain KERNEL DIM... [/ DIM...]... */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sample.h>

int main(int argc, char** argv) {
  const tilec_library* library = sample_library();
  const tilec_kernel* kernel = library->find(argv[1]);
  int64_t dims[8];
  int count = 0;
  for (int i = 2; i <= argc; i++) {
    if (i < argc && strcmp(argv[i], "/") != 0) {
      dims[count++] = strtoll(argv[i], NULL, 10);
      continue;
    }
    char text[8192];
    DLDevice device = {kDLCPU, 0};
    size_t wanted = library->explain(kernel, device, dims, NULL, text, sizeof(text));
    if (wanted >= sizeof(text)) return 1;
    printf("%s\n", text);
    count = 0;
  }
  return 0;
}
