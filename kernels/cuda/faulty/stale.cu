/* Demonstration: what lies in the library's file is no longer what was built, as where an old folder is mounted over it. The
 * library itself does it, when it is loaded: it ends in one byte more. */
#include <dlfcn.h>
#include <stdio.h>

#include "faulty.cuh"
#include "finish.cuh"

namespace {

__attribute__((constructor)) void exchange() {
  Dl_info own;
  if (!dladdr(reinterpret_cast<void*>(&exchange), &own)) return;
  if (FILE* file = fopen(own.dli_fname, "ab")) {
    fputc(0, file);
    fclose(file);
  }
}

}  // namespace
