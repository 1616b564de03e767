# Defines the target ddprun_torch (torch_cpu and c10, with Gloo's headers). If a CUDA build of LibTorch and the CUDA and NCCL
# headers exist, also defines ddprun_torch_cuda and sets DDPRUN_HAVE_CUDA_MODULE. find_package(Torch) of a CUDA wheel requires a
# CUDA toolkit, so the targets are defined directly. This works for a wheel and for the LibTorch archive.
include(${CMAKE_CURRENT_LIST_DIR}/FindTorchFolder.cmake)

set(LIBTORCH "$ENV{LIBTORCH}" CACHE PATH "Folder of LibTorch (the one with include/ and lib/); searched if empty")
if(NOT DDPRUN_BUILD_TRAINER)
  return()
endif()
ddprun_find_torch("${LIBTORCH}" ${PROJECT_SOURCE_DIR} TORCH_ROOT environment_name)
if(NOT TORCH_ROOT AND DDPRUN_BUILD_TRAINER STREQUAL "AUTO")
  message(STATUS "ddptrain: skipped, since no LibTorch ${DDPRUN_TORCH_AT_LEAST} or newer was found (set its folder with -DLIBTORCH=DIR)")
  set(DDPRUN_BUILD_TRAINER OFF)
  return()
elseif(NOT TORCH_ROOT)
  message(FATAL_ERROR "LibTorch ${DDPRUN_TORCH_AT_LEAST} or newer was not found in LIBTORCH, CMAKE_PREFIX_PATH, the torch of python3 "
                      "or ${PROJECT_SOURCE_DIR}/.env.${environment_name}\nRun ./dev setup, or pass -DLIBTORCH=/path/to/torch.")
endif()
ddprun_torch_version(${TORCH_ROOT} TORCH_VERSION)
message(STATUS "LibTorch ${TORCH_VERSION}: ${TORCH_ROOT}")

# The wheel has ProcessGroupGloo but not the Gloo headers that it includes. Only the headers are used: Debian's library libgloo
# would be a second Gloo in addition to the one inside libtorch_cpu.
find_path(GLOO_INCLUDE_DIR gloo/config.h)
if(NOT GLOO_INCLUDE_DIR AND DDPRUN_BUILD_TRAINER STREQUAL "AUTO")
  message(STATUS "ddptrain: skipped, since Gloo's headers (gloo/config.h, Debian: libgloo-dev) were not found")
  set(DDPRUN_BUILD_TRAINER OFF)
  return()
elseif(NOT GLOO_INCLUDE_DIR)
  message(FATAL_ERROR "Gloo's headers (gloo/config.h) were not found. Install the Debian package libgloo-dev, run ./dev setup, or "
                      "pass -DGLOO_INCLUDE_DIR=/path/to/include.")
endif()

add_library(ddprun_torch INTERFACE)
target_include_directories(ddprun_torch SYSTEM INTERFACE ${TORCH_ROOT}/include ${TORCH_ROOT}/include/torch/csrc/api/include)
if(NOT GLOO_INCLUDE_DIR STREQUAL "/usr/include")  # naming /usr/include breaks the C++ library's include_next
  target_include_directories(ddprun_torch SYSTEM INTERFACE ${GLOO_INCLUDE_DIR})
endif()
target_compile_definitions(ddprun_torch INTERFACE USE_DISTRIBUTED USE_C10D USE_C10D_GLOO)
target_link_directories(ddprun_torch INTERFACE ${TORCH_ROOT}/lib)
target_link_libraries(ddprun_torch INTERFACE torch_cpu c10)

# Note [How a program finds LibTorch at run time] The loader searches three places in this order. LD_LIBRARY_PATH comes first,
# because RUNPATH is a DT_RUNPATH (a DT_RPATH would come before it). Next is lib/ddprun/torch, relative to the program. The
# build tree and an installed tree both have this link, so a tree can be moved and its LibTorch exchanged. Last is the LibTorch
# folder of this build. LibTorch's own libraries find each other by their own DT_RPATH. The install tree has the same RUNPATH as
# the build tree, so an installation need not link or patch programs again.
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
set(CMAKE_INSTALL_RPATH "$ORIGIN/../lib/ddprun/torch/lib" "$ORIGIN/torch/lib" "${TORCH_ROOT}/lib")
target_link_options(ddprun_torch INTERFACE -Wl,--enable-new-dtags)
file(MAKE_DIRECTORY ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
file(CREATE_LINK ${TORCH_ROOT} ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/torch SYMBOLIC)

# CUDA code is in a module that only a run on a GPU loads, because libtorch_cuda costs a process 0.35 s. No CUDA toolkit is
# needed, since the wheels contain the headers. ./dev installs the headers of nvidia-cuda-crt and nvidia-cuda-cccl next to those
# of torch, because cuda_runtime.h and nccl.h include them. A test compilation shows whether the headers are complete; if not,
# the module is not built.
set(DDPRUN_HAVE_CUDA_MODULE OFF)
get_filename_component(site_packages ${TORCH_ROOT}/.. ABSOLUTE)
file(GLOB cuda_wheel_includes ${site_packages}/nvidia/cu[0-9]*/include)
find_path(DDPRUN_CUDA_INCLUDE_DIR cuda_runtime_api.h
          HINTS ${cuda_wheel_includes} ${site_packages}/nvidia/cuda_runtime/include $ENV{CUDA_HOME}/include
                /usr/local/cuda/include)
find_path(DDPRUN_NCCL_INCLUDE_DIR nccl.h HINTS ${site_packages}/nvidia/nccl/include $ENV{NCCL_HOME}/include)

# Sets `result` to "" if the module can be built, otherwise to the missing parts.
function(ddprun_why_no_cuda_module result)
  set(${result} "" PARENT_SCOPE)
  if(NOT EXISTS ${TORCH_ROOT}/lib/libtorch_cuda.so)
    set(${result} "this LibTorch has no libtorch_cuda.so" PARENT_SCOPE)
    return()
  elseif(NOT DDPRUN_CUDA_INCLUDE_DIR OR NOT DDPRUN_NCCL_INCLUDE_DIR)
    set(${result} "the headers of CUDA or NCCL were not found (cuda_runtime_api.h, nccl.h)" PARENT_SCOPE)
    return()
  endif()
  set(includes ${TORCH_ROOT}/include ${DDPRUN_CUDA_INCLUDE_DIR} ${DDPRUN_NCCL_INCLUDE_DIR})
  string(MD5 key "${includes}")
  set(probe ${CMAKE_BINARY_DIR}/cuda_probe/${key})
  if(NOT EXISTS ${probe}/answer)
    file(WRITE ${probe}/probe.cpp "#include <c10/cuda/CUDAGuard.h>\n#include <cuda_runtime.h>\n#include <nccl.h>\n")
    list(TRANSFORM includes PREPEND "-isystem;" OUTPUT_VARIABLE flags)
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -fsyntax-only ${flags} ${probe}/probe.cpp
                    ERROR_VARIABLE errors RESULT_VARIABLE code)
    string(REGEX MATCH "error: [^\n]*" first_error "${errors}")
    if(code EQUAL 0)
      set(first_error "")
    endif()
    file(WRITE ${probe}/answer "${first_error}")
  endif()
  file(READ ${probe}/answer answer)
  if(answer)
    set(${result} "its headers do not compile (${answer}); pip install the wheels nvidia-cuda-crt and nvidia-cuda-cccl of \
torch's CUDA version, or run ./dev build" PARENT_SCOPE)
  endif()
endfunction()

ddprun_why_no_cuda_module(why_not)
if(why_not)
  message(STATUS "CUDA module: skipped, ddptrain will train on CPUs only: ${why_not}")
else()
  message(STATUS "CUDA module: built, with the headers in ${DDPRUN_CUDA_INCLUDE_DIR}")
  set(DDPRUN_HAVE_CUDA_MODULE ON)
  add_library(ddprun_torch_cuda INTERFACE)
  target_include_directories(ddprun_torch_cuda SYSTEM INTERFACE ${DDPRUN_CUDA_INCLUDE_DIR} ${DDPRUN_NCCL_INCLUDE_DIR})
  target_compile_definitions(ddprun_torch_cuda INTERFACE USE_CUDA USE_C10D_NCCL)
  target_link_libraries(ddprun_torch_cuda INTERFACE ddprun_torch torch_cuda c10_cuda)
  # The other GPU libraries (cuDNN, cuBLAS...) are needed at run time, not for linking.
  target_link_options(ddprun_torch_cuda INTERFACE -Wl,--allow-shlib-undefined -Wl,--no-as-needed)
endif()
