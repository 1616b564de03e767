# cmake -DLINKER=ld -DNM=nm -DARCHIVES=a.a;b.a -DOBJECT=pure.o -P cmake/CheckPurity.cmake: links the libraries of all PURE rooms
# (Rooms.cmake) whole into one object, with nothing else, and looks at what that object still needs. A state machine may compute,
# allocate memory and throw; what it asks of the C library and the C++ runtime is listed here. A socket, a file, a process, an
# environment variable, a thread or a clock is not, and neither is a function of a room that is not pure.
cmake_minimum_required(VERSION 3.25)

execute_process(COMMAND ${LINKER} -r --whole-archive ${ARCHIVES} --no-whole-archive -o ${OBJECT} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${NM} --undefined-only --demangle ${OBJECT} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)

# Of C: memory, text and arithmetic; numbers written and read in the "C" locale (nlohmann/json asks localeconv). glibc 2.38 and
# newer have other names for some.
set(c_functions "mem(chr|cmp|cpy|move|set)|str(len|cmp|tod|toll|toull)|__isoc23_str(toll|toull)|v?snprintf|localeconv|llround|__errno_location"
                "__(mem|str|snprintf|stpcpy)[a-z]*_chk|__stack_chk_fail|abort")
# What every C++ file may need, and the object's own bookkeeping.
set(runtime "operator (new|delete).*|__cxa_.*|__gxx_personality_v0|_Unwind_Resume|__dso_handle|_GLOBAL_OFFSET_TABLE_|vtable for .*"
            "typeinfo for .*|__libc_single_threaded")
# Of the standard library all but what looks at the world.
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
  message(NOTICE "The pure rooms need what is not theirs to need:\n${mistakes}"
                 "A pure room computes: events and the time come in, actions go out. Move the call to a shell, or take PURE "
                 "from the room in its CMakeLists.txt.")
  message(FATAL_ERROR "cmake/Rooms.cmake says what a pure room is")
endif()
