// The place for all differences between the supported versions of LibTorch. parallel/ has none today: 2.15 only added defaulted
// arguments to Reducer and moved headers that are not included here.
#pragma once

#include <torch/headeronly/version.h>

static_assert(TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 11),
              "ddptrain needs LibTorch 2.11 or newer");
