# A toolchain file: clang and libc++ of the wheel `ziglang`, linked against glibc 2.28, so that the programs run on all of manylinux_2_28
# (any Linux since 2018). Dependencies come from a folder of unpacked -dev packages, and from nowhere else.
#   DDPRUN_TARGET   x86_64 or aarch64
#   DDPRUN_STAGE    the folder
#   DDPRUN_ZIG      python that has ziglang
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES DDPRUN_TARGET DDPRUN_STAGE DDPRUN_ZIG)
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
