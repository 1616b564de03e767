// All code that depends on the version of LibTorch belongs in this file. At present it only checks that the version is
// supported. Version 2.15 has added default arguments to Reducer and moved headers that this program does not include, so it
// needs no different code.
#pragma once

#include <torch/headeronly/version.h>

static_assert(TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 11),
              "ddptrain needs LibTorch 2.11 or newer");
