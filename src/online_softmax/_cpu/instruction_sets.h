// Which build of the kernels runs.
#pragma once

#include "kernels.h"

namespace online_softmax {

// Null-terminated: what this machine can run, best first.
const Kernels* const* available_kernels();

const Kernels& kernels();           // the build in use: the best, unless a test has chosen another
bool use_kernels(const char* name);  // false when this machine cannot run it

}  // namespace online_softmax
