/* The answers of the operating system that this is compiled for. */
#include "system/system.h"

#if defined(__linux__)
#include "system/system_linux.c"
#elif defined(__APPLE__)
#include "system/system_macos.c"
#elif defined(_WIN32)
#include "system/system_windows.c"
#else
#error "no file about this operating system"
#endif
