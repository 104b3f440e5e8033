/* Windows 10 and newer: WaitOnAddress, fiber-local storage for ends of threads, no fork and no setuid. */
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>

#include <malloc.h>
#include <psapi.h>
#include <stdio.h>
#include <string.h>

#include "system/system.h"

static BOOL CALLBACK run_work(PINIT_ONCE once, PVOID work, PVOID* context) {
  (void)once;
  (void)context;
  (*(void (**)(void))work)();
  return TRUE;
}

LOCAL void system_run_once(system_once* once, void (*work)(void)) {
  InitOnceExecuteOnce((PINIT_ONCE)once, run_work, (void*)&work, NULL);
}

LOCAL void system_lock(system_mutex* mutex) { AcquireSRWLockExclusive((PSRWLOCK)mutex); }
LOCAL void system_unlock(system_mutex* mutex) { ReleaseSRWLockExclusive((PSRWLOCK)mutex); }
LOCAL void system_renew(system_mutex* mutex) { InitializeSRWLock((PSRWLOCK)mutex); }

/* Looked up by name: with other linkers their import library has another name, or there is none. */
static struct {
  system_once once;
  BOOL(WINAPI* wait)(volatile VOID* word, PVOID seen, SIZE_T size, DWORD milliseconds);
  VOID(WINAPI* wake_one)(PVOID word);
  VOID(WINAPI* wake_all)(PVOID word);
} words = {.once = SYSTEM_ONCE};

static void find_words(void) {
  char why[128];
  void* library = system_open("api-ms-win-core-synch-l1-2-0.dll", why, sizeof(why));
  *(void**)&words.wait = system_symbol(library, "WaitOnAddress");
  *(void**)&words.wake_one = system_symbol(library, "WakeByAddressSingle");
  *(void**)&words.wake_all = system_symbol(library, "WakeByAddressAll");
}

LOCAL void system_wait(uint32_t* word, uint32_t seen) {
  system_run_once(&words.once, find_words);
  words.wait(word, &seen, sizeof(seen), INFINITE);
}

LOCAL void system_wake_one(uint32_t* word) {
  system_run_once(&words.once, find_words);
  words.wake_one(word);
}

LOCAL void system_wake_all(uint32_t* word) {
  system_run_once(&words.once, find_words);
  words.wake_all(word);
}

/* Code that threads are in, or come back to, is not unloaded. */
static void stay_loaded(void) {
  HMODULE own;
  DWORD how = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_PIN;
  GetModuleHandleExA(how, (LPCSTR)(uintptr_t)stay_loaded, &own);
}

/* What each new thread runs. */
static void (*_Atomic thread_body)(uint32_t);

static DWORD WINAPI thread_main(LPVOID argument) {
  void (*body)(uint32_t) = thread_body;
  body((uint32_t)(uintptr_t)argument);
  return 0;
}

LOCAL bool system_start_thread(void (*run)(uint32_t), uint32_t argument) {
  stay_loaded();
  thread_body = run;
  HANDLE thread = CreateThread(NULL, 0, thread_main, (LPVOID)(uintptr_t)argument, 0, NULL);
  if (thread) CloseHandle(thread);
  return thread != NULL;
}

static DWORD end_slot = FLS_OUT_OF_INDEXES;
static system_once end_once = SYSTEM_ONCE;
static void (*_Atomic end_of_thread)(void*); /* every thread sets it to the same */

static VOID WINAPI call_end(PVOID value) {
  void (*end)(void*) = end_of_thread;
  if (value) end(value);
}

static void make_end_slot(void) {
  stay_loaded();
  end_slot = FlsAlloc(call_end);
}

LOCAL bool system_at_thread_end(void (*end)(void*), void* value) {
  end_of_thread = end;
  system_run_once(&end_once, make_end_slot);
  return end_slot != FLS_OUT_OF_INDEXES && FlsSetValue(end_slot, value);
}

LOCAL void system_after_fork(void (*child)(void)) { (void)child; }

/* A process with all CPUs of its group has those of the other groups, too. */
LOCAL uint32_t system_cpus(void) {
  DWORD_PTR own, all;
  if (!GetProcessAffinityMask(GetCurrentProcess(), &own, &all)) return 0;
  return own == all ? GetActiveProcessorCount(ALL_PROCESSOR_GROUPS) : (uint32_t)__builtin_popcountll(own);
}

LOCAL void system_yield(void) { SwitchToThread(); }

/* Not asked: a thread that is woken there begins on an idle CPU where there is one. */
LOCAL int system_cpu(void) { return -1; }

LOCAL void system_leave_cpu(int cpu) { (void)cpu; }

#if defined(__aarch64__)
LOCAL bool system_has(const cpu_test* test) { return IsProcessorFeaturePresent(test->word) != 0; }
#endif

LOCAL bool system_permits(uint32_t component) { return component == 0; }

LOCAL void* system_open(const char* file, char* why, size_t size) {
  void* library = (void*)LoadLibraryExA(file, NULL, LOAD_LIBRARY_SEARCH_SYSTEM32);
  if (!library) snprintf(why, size, "%s cannot be opened (error %lu)", file, GetLastError());
  return library;
}

/* Whether the file of a path has this name before its first dot, or dash; files have no case. */
static bool is_named(const char* path, const char* stem) {
  const char* slash = strrchr(path, '\\');
  const char* file = slash ? slash + 1 : path;
  size_t length = strlen(stem);
  return _strnicmp(file, stem, length) == 0 && (file[length] == '.' || file[length] == '-');
}

LOCAL void* system_loaded(const char* stem, const char** path) {
  static char found[MAX_PATH];
  HMODULE modules[1024], kept;
  DWORD bytes;
  if (!K32EnumProcessModules(GetCurrentProcess(), modules, sizeof(modules), &bytes)) return NULL;
  DWORD count = (bytes < sizeof(modules) ? bytes : (DWORD)sizeof(modules)) / sizeof(HMODULE);
  for (DWORD i = 0; i < count; i++) {
    char name[MAX_PATH];
    DWORD length = GetModuleFileNameA(modules[i], name, MAX_PATH);
    if (length == 0 || length == MAX_PATH || !is_named(name, stem)) continue;
    if (!GetModuleHandleExA(GET_MODULE_HANDLE_EX_FLAG_PIN, name, &kept)) return NULL;
    memcpy(found, name, length + 1);
    *path = found;
    return (void*)kept;
  }
  return NULL;
}

LOCAL void* system_symbol(void* library, const char* name) {
  HMODULE module = library ? (HMODULE)library : GetModuleHandleA(NULL);
  return (void*)(uintptr_t)GetProcAddress(module, name);
}

LOCAL int64_t system_now_ns(void) {
  LARGE_INTEGER now, frequency;
  QueryPerformanceFrequency(&frequency);
  QueryPerformanceCounter(&now);
  int64_t seconds = now.QuadPart / frequency.QuadPart, rest = now.QuadPart % frequency.QuadPart;
  return seconds * 1000000000 + rest * 1000000000 / frequency.QuadPart;
}

LOCAL bool system_is_elevated(void) { return false; }

LOCAL void* system_allocate(size_t align, size_t size) { return _aligned_malloc(size, align); }
LOCAL void system_free(void* memory) { _aligned_free(memory); }
