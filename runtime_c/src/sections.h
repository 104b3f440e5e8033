/* How assemblers spell the sections that describe a library: .tilec.meta in ELF, __tilec_meta of the segment
 * __TEXT in Mach-O, and .tlmeta in PE, whose names have eight letters. BESIDE is for what is only read from
 * the file. */
/* clang-format off */
#if defined(__APPLE__)
#define SYMBOL(name) _##name
#define HIDDEN(name) .private_extern _##name
#define LOADED(name) .section __TEXT, __tilec_##name, regular, no_dead_strip
#define BESIDE(name) LOADED(name)
#elif defined(_WIN32)
#define SYMBOL(name) name
#define HIDDEN(name)
#define LOADED(name) .section .tl##name, "dr"
#define BESIDE(name) LOADED(name)
#else
#define SYMBOL(name) name
#define HIDDEN(name) .hidden name
#define LOADED(name) .section .tilec.name, "a", %progbits
#define BESIDE(name) .section .tilec.name, "", %progbits
#endif
