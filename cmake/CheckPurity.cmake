# usage: cmake -DLINKER=ld -DNM=nm -DARCHIVES=a.a;b.a -DOBJECT=pure.o -P cmake/CheckPurity.cmake
#
# Links the whole libraries of all PURE modules (Modules.cmake) into one object, without any other library, and checks the
# undefined symbols of that object. A state machine may compute, allocate memory and throw. The lists below contain the
# functions of the C library and the C++ runtime that it may use for this. They do not contain sockets, files, processes,
# environment variables, threads and clocks, nor functions of modules that are not pure.
cmake_minimum_required(VERSION 3.25)

execute_process(COMMAND ${LINKER} -r --whole-archive ${ARCHIVES} --no-whole-archive -o ${OBJECT} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${NM} --undefined-only --demangle ${OBJECT} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)

# Functions of the C library for memory, text and arithmetic, and for reading and writing numbers in the "C" locale
# (nlohmann/json calls localeconv). Some have other names in glibc 2.38 and newer.
set(c_functions "mem(chr|cmp|cpy|move|set)|explicit_bzero|str(len|cmp|tod|toll|toull)|__isoc23_str(toll|toull)|v?snprintf|localeconv|llround|__errno_location"
                "__(mem|str|snprintf|stpcpy|explicit_bzero)[a-z]*_chk|__stack_chk_fail|abort")
# Symbols that any C++ file may need, and symbols of the object file itself.
set(runtime "operator (new|delete).*|__cxa_.*|__gxx_personality_v0|_Unwind_Resume|__dso_handle|_GLOBAL_OFFSET_TABLE_|vtable for .*"
            "typeinfo for .*|__libc_single_threaded")
# All symbols of the standard library. The check below refuses those that access the outside world.
set(library "std::.*|non-virtual thunk to std::.*|guard variable for std::.*|VTT for std::.*")
foreach(list c_functions runtime library)
  list(JOIN ${list} "|" ${list})
endforeach()

string(REGEX REPLACE "\n" ";" symbols "${symbols}")
set(mistakes "")
foreach(symbol ${symbols})
  string(REGEX REPLACE "^ *[UwV] " "" symbol "${symbol}")
  if(symbol STREQUAL "" OR symbol MATCHES "^(${c_functions}|${runtime})$")
    continue()
  endif()
  if(symbol MATCHES "^(${library})"
     AND NOT symbol MATCHES "clock::now|std::filesystem::[a-z_]+\\(|fstream|filebuf|__basic_file"
     AND NOT symbol MATCHES "^std::(thread|this_thread|mutex|condition_variable|random_device|cin|cout|cerr|clog|__future)")
    continue()
  endif()
  string(APPEND mistakes "  ${symbol}\n")
endforeach()
if(mistakes)
  message(NOTICE "Pure modules use symbols that they must not use:\n${mistakes}"
                 "A pure module only computes: it receives events and the time, and returns actions. Move the call to a shell, or "
                 "remove PURE from the module in its CMakeLists.txt.")
  message(FATAL_ERROR "cmake/Modules.cmake defines a pure module")
endif()
