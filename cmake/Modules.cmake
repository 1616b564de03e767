# A module is a CMake target for one subject: the files of a folder, or a part of them. ddprun_module() makes its library. Its
# USES names the other modules whose headers its files may include: the only place where a dependency is written down.
# CheckModules.cmake compares every #include with it in each build, and `./dev modules` draws docs/internals/modules.md from
# the same lines.
#
#   ddprun_module(launcher/hang
#     SUMMARY "its subject in a few words"       for docs/internals/modules.md
#     USES launcher/hang:rules common/channel    modules whose headers it may include; the library links theirs
#     LINKS Boost::headers                       other libraries that its headers need
#     PURE                                       no sockets, files, processes, threads or clocks: CheckPurity.cmake links it alone
#     HOT)                                       a module of the launcher in which the processor time matters: -O2, not -O1
#
# A folder has one subject. A target is either pure or not. So a folder with a pure part and an I/O part has two modules:
# FOLDER:PART, whose FILES are named without their endings, and FOLDER, which has the remaining files.
#
#   ddprun_module(launcher/hang:rules FILES hang_state hang_watch ... PURE)
#
# The library of a/b is called a_b, and the library of a/b:c is called a_b_c. A folder below a module that is not a module
# itself is a shared library with a CMakeLists.txt.
include_guard(GLOBAL)
set_property(GLOBAL PROPERTY DDPRUN_MODULES "")

# Sets `variable` to the name of a module's target.
function(ddprun_target_of module variable)
  string(REGEX REPLACE "[/:]" "_" target ${module})
  set(${variable} ${target} PARENT_SCOPE)
endfunction()

function(ddprun_module module)
  cmake_parse_arguments(ARG "PURE;HOT" "SUMMARY" "FILES;USES;LINKS" ${ARGN})
  if(ARG_UNPARSED_ARGUMENTS OR NOT ARG_SUMMARY)
    message(FATAL_ERROR "ddprun_module(${module}): expected SUMMARY, FILES, USES, LINKS, PURE or HOT, found '${ARG_UNPARSED_ARGUMENTS}'")
  endif()
  ddprun_target_of(${module} target)
  string(REGEX REPLACE ":.*" "" folder ${module})
  if(module MATCHES ":" AND NOT ARG_FILES)
    message(FATAL_ERROR "ddprun_module(${module}): a part of a folder needs FILES")
  endif()
  set(files)
  if(ARG_FILES)
    foreach(file ${ARG_FILES})
      file(GLOB found CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/${file}.cpp ${PROJECT_SOURCE_DIR}/${folder}/${file}.hpp)
      if(NOT found)
        message(FATAL_ERROR "ddprun_module(${module}): there is no ${folder}/${file}.cpp or .hpp")
      endif()
      list(APPEND files ${found})
    endforeach()
  else()
    file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.cpp ${PROJECT_SOURCE_DIR}/${folder}/*.hpp)
    # The parts of a folder are defined before the module that has the remaining files.
    get_property(parts GLOBAL PROPERTY DDPRUN_PARTS_${folder})
    if(parts)
      list(REMOVE_ITEM files ${parts})
    endif()
  endif()
  set_property(GLOBAL APPEND PROPERTY DDPRUN_PARTS_${folder} ${files})
  set(sources ${files})
  list(FILTER sources INCLUDE REGEX "\\.cpp$")
  # In builds that join files, a module is one object file. The compiler then reads the headers of the module once.
  if(sources)
    add_library(${target} STATIC ${sources})
    set(scope PUBLIC)
    set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX UNITY_BUILD_BATCH_SIZE 12)
    # GCC 12 warns about overlaps that do not exist in "text" + std::string (GCC bug 105651).
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
    # The launcher nearly always waits for processes and sockets, and a config is read only once. So these modules are compiled
    # with -O1, which needs a quarter less compile time (docs/internals/decisions/build/launcher-at-o1.md).
    if(module MATCHES "^launcher/|^common/config$" AND NOT ARG_HOT)
      target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
    endif()
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_link_libraries(${target} ${scope} ddprun_options ${ARG_LINKS})
  foreach(used ${ARG_USES})
    ddprun_target_of(${used} used_target)
    # Modules are defined in the order of their dependencies: a module can only use earlier ones, so there are no cycles.
    if(NOT TARGET ${used_target})
      message(FATAL_ERROR "the module ${module} uses ${used}, which is not defined before it: dependencies run one way")
    endif()
    target_link_libraries(${target} ${scope} ${used_target})
  endforeach()
  list(TRANSFORM files REPLACE "^${PROJECT_SOURCE_DIR}/" "")
  set_property(GLOBAL APPEND PROPERTY DDPRUN_MODULES ${module})
  set_property(GLOBAL PROPERTY DDPRUN_MODULE_${module}_USES "${ARG_USES}")
  set_property(GLOBAL PROPERTY DDPRUN_MODULE_${module}_SUMMARY "${ARG_SUMMARY}")
  set_property(GLOBAL PROPERTY DDPRUN_MODULE_${module}_PURE ${ARG_PURE})
  set_property(GLOBAL PROPERTY DDPRUN_MODULE_${module}_FILES "${files}")
  if(ARG_PURE)
    set_property(GLOBAL APPEND PROPERTY DDPRUN_PURE_MODULES ${module})
  endif()
endfunction()

# ddprun_modules_of(common) defines the library ddprun_common, which contains all modules of that folder.
function(ddprun_modules_of folder)
  get_property(modules GLOBAL PROPERTY DDPRUN_MODULES)
  add_library(ddprun_${folder} INTERFACE)
  foreach(module ${modules})
    if(module MATCHES "^${folder}/")
      ddprun_target_of(${module} target)
      target_link_libraries(ddprun_${folder} INTERFACE ${target})
    endif()
  endforeach()
endfunction()

# ddprun_way_of_a_job(module...) records the modules through which a job passes, in this order, for docs/internals/modules.md.
function(ddprun_way_of_a_job)
  get_property(modules GLOBAL PROPERTY DDPRUN_MODULES)
  foreach(module ${ARGN})
    if(NOT module IN_LIST modules)
      message(FATAL_ERROR "ddprun_way_of_a_job: unknown module ${module}")
    endif()
  endforeach()
  set_property(GLOBAL PROPERTY DDPRUN_WAY "${ARGN}")
endfunction()

# Call this after the last module. It writes the declarations to modules.txt in the build folder, and adds the check to the
# build. A line of modules.txt has the form: MODULE|USES|PURE|SUMMARY|FILES
function(ddprun_check_modules)
  get_property(modules GLOBAL PROPERTY DDPRUN_MODULES)
  set(text "")
  set(files)
  foreach(module ${modules})
    foreach(field USES SUMMARY PURE FILES)
      get_property(${field} GLOBAL PROPERTY DDPRUN_MODULE_${module}_${field})
    endforeach()
    string(APPEND text "${module}|${USES}|${PURE}|${SUMMARY}|${FILES}\n")
    list(TRANSFORM FILES PREPEND ${PROJECT_SOURCE_DIR}/ OUTPUT_VARIABLE paths)
    list(APPEND files ${paths})
  endforeach()
  get_property(way GLOBAL PROPERTY DDPRUN_WAY)
  string(APPEND text "way|${way}|||\n")
  string(REPLACE ";" " " text "${text}")
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/modules.txt CONTENT "${text}" @ONLY)
  add_custom_command(
    OUTPUT ${CMAKE_BINARY_DIR}/modules.checked
    COMMAND ${CMAKE_COMMAND} -DMODULES=${CMAKE_BINARY_DIR}/modules.txt -DSOURCES=${PROJECT_SOURCE_DIR} -P
            ${PROJECT_SOURCE_DIR}/cmake/CheckModules.cmake
    COMMAND ${CMAKE_COMMAND} -E touch ${CMAKE_BINARY_DIR}/modules.checked
    DEPENDS ${CMAKE_BINARY_DIR}/modules.txt ${PROJECT_SOURCE_DIR}/cmake/CheckModules.cmake ${files}
    COMMENT "Checking what modules include")
  set(checks ${CMAKE_BINARY_DIR}/modules.checked)
  # The check runs only in builds of contributors. With a sanitizer, its calls would be among the symbols. Another C++ library
  # has other names for its symbols. A user's build should not fail because its C library has other names.
  if(DDPRUN_WARNINGS_AS_ERRORS AND NOT DDPRUN_SANITIZE AND NOT CMAKE_CROSSCOMPILING AND NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
    get_property(pure GLOBAL PROPERTY DDPRUN_PURE_MODULES)
    list(TRANSFORM pure REPLACE "[/:]" "_" OUTPUT_VARIABLE targets)
    list(TRANSFORM targets REPLACE "(.+)" "$<TARGET_FILE:\\1>" OUTPUT_VARIABLE archives)
    add_custom_command(
      OUTPUT ${CMAKE_BINARY_DIR}/pure_modules.o
      COMMAND ${CMAKE_COMMAND} -DLINKER=${CMAKE_LINKER} -DNM=${CMAKE_NM} "-DARCHIVES=${archives}"
              -DOBJECT=${CMAKE_BINARY_DIR}/pure_modules.o -P ${PROJECT_SOURCE_DIR}/cmake/CheckPurity.cmake
      DEPENDS ${PROJECT_SOURCE_DIR}/cmake/CheckPurity.cmake ${targets}
      COMMENT "Linking the pure modules by themselves"
      VERBATIM)
    list(APPEND checks ${CMAKE_BINARY_DIR}/pure_modules.o)
  endif()
  add_custom_target(check_modules ALL DEPENDS ${checks})
endfunction()
