// A library that is opened when the program runs: neither compiling nor linking needs it.
#pragma once

#include <dlfcn.h>

#include <stdexcept>
#include <string>

namespace llama {

class Foreign {
 public:
  // Opens `file`. Throws std::runtime_error: what it was `wanted` for, and why that failed.
  Foreign(const char* file, const std::string& wanted) : file_(file), library_(::dlopen(file, RTLD_NOW)) {
    if (library_ == nullptr) throw std::runtime_error(wanted + ": " + ::dlerror());
  }

  // Calls a function by its name; its type is that of the arguments. Throws std::runtime_error where there is none.
  template <typename Result, typename... Arguments>
  Result call(const char* name, Arguments... arguments) const {
    void* found = ::dlsym(library_, name);
    if (found == nullptr) throw std::runtime_error(std::string(file_) + " has no " + name);
    return reinterpret_cast<Result (*)(Arguments...)>(found)(arguments...);
  }

 private:
  const char* file_;
  void* library_;
};

}  // namespace llama
