# Finds LibTorch and makes the target ddprun_torch (torch_cpu + c10, with Gloo's headers). find_package(Torch) of a CUDA wheel
# demands a CUDA toolkit, so the targets are made directly; it works for a wheel and for the LibTorch archive alike.
# Search order: -DLIBTORCH= or $LIBTORCH, CMAKE_PREFIX_PATH, the Python on PATH, the project's own environment made by ./dev.
set(LIBTORCH "$ENV{LIBTORCH}" CACHE PATH "Folder of LibTorch (the one with include/ and lib/)")
find_path(TORCH_ROOT include/torch/csrc/api/include/torch/torch.h PATHS ${LIBTORCH} ${CMAKE_PREFIX_PATH} NO_DEFAULT_PATH)
if(NOT TORCH_ROOT)
  message(FATAL_ERROR "LibTorch was not found. Run ./dev setup, or pass -DLIBTORCH=/path/to/torch.")
endif()
add_library(ddprun_torch INTERFACE)
target_include_directories(ddprun_torch SYSTEM INTERFACE ${TORCH_ROOT}/include ${TORCH_ROOT}/include/torch/csrc/api/include)
target_compile_definitions(ddprun_torch INTERFACE USE_DISTRIBUTED USE_C10D USE_C10D_GLOO)
target_link_directories(ddprun_torch INTERFACE ${TORCH_ROOT}/lib)
target_link_libraries(ddprun_torch INTERFACE torch_cpu c10)
target_link_options(ddprun_torch INTERFACE -Wl,-rpath,${TORCH_ROOT}/lib -Wl,--no-as-needed)
