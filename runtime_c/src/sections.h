/* How assemblers spell the sections that describe a library: .tilec.meta in ELF, __tilec_meta of the segment
 * __TEXT in Mach-O, and .tlmeta in PE, whose names have eight letters. BESIDE is for what is only read from
 * the file; HIDDEN makes a symbol one that other files of the library see, and no one else. */
#if defined(__APPLE__)
#define SYMBOL(name) "_" #name
#define HIDDEN(name) "  .private_extern " SYMBOL(name) "\n  .globl " SYMBOL(name) "\n"
#define LOADED(name) "  .section __TEXT, __tilec_" #name ", regular, no_dead_strip\n"
#define BESIDE(name) LOADED(name)
#elif defined(_WIN32)
#define SYMBOL(name) #name
#define HIDDEN(name) "  .globl " SYMBOL(name) "\n"
#define LOADED(name) "  .section .tl" #name ", \"dr\"\n"
#define BESIDE(name) LOADED(name)
#else
#define SYMBOL(name) #name
#define HIDDEN(name) "  .hidden " SYMBOL(name) "\n  .globl " SYMBOL(name) "\n"
#define LOADED(name) "  .section .tilec." #name ", \"a\", %progbits\n"
#define BESIDE(name) "  .section .tilec." #name ", \"\", %progbits\n"
#endif
