# A toolchain file: clang and libc++ of the Python package ziglang, linked against glibc 2.28, which every common Linux since
# 2018 has. The result depends on nothing of the build machine: dependencies come from a folder of unpacked -dev packages.
# package.py passes the paths.
#   DDPRUN_TARGET   x86_64 or aarch64
#   DDPRUN_STAGE    the folder; its bin/ has zig-cc and the like
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES DDPRUN_TARGET DDPRUN_STAGE)
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${DDPRUN_TARGET})
set(CMAKE_LIBRARY_ARCHITECTURE ${DDPRUN_TARGET}-linux-gnu)
set(CMAKE_C_COMPILER ${DDPRUN_STAGE}/bin/zig-cc)
set(CMAKE_CXX_COMPILER ${DDPRUN_STAGE}/bin/zig-c++)
set(CMAKE_AR ${DDPRUN_STAGE}/bin/zig-ar)
set(CMAKE_RANLIB ${DDPRUN_STAGE}/bin/zig-ranlib)
set(CMAKE_FIND_ROOT_PATH ${DDPRUN_STAGE})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(OPENSSL_USE_STATIC_LIBS ON)
# Linked without symbols, and position-independent (loaded at random addresses), as Debian's compiler does by default.
set(CMAKE_EXE_LINKER_FLAGS_INIT "-s -pie")
set(CMAKE_MODULE_LINKER_FLAGS_INIT "-s")
