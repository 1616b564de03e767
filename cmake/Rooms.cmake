# A room is a folder with one subject. ddprun_room() makes its library, and its USES say which other rooms its files may
# include: the one place where an arrow between rooms is written down. CheckRooms.cmake holds every #include against it in each
# build, and `./dev rooms` draws docs/internals/rooms.md from the same lines.
#
#   ddprun_room(launcher/decide
#     SAYS "what one sentence says of it"   for the picture
#     USES launcher/verdict common/channel  rooms whose headers it may include; the room's library links theirs
#     LINKS Boost::headers                  other libraries that its headers need
#     PURE)                                 no sockets, files, processes, threads or clocks: CheckPurity.cmake links it alone
#
# The library of the room a/b is called a_b. A folder below a room that is no room itself is a module with a CMakeLists.txt.
include_guard(GLOBAL)
set_property(GLOBAL PROPERTY DDPRUN_ROOMS "")

function(ddprun_room room)
  cmake_parse_arguments(ARG "PURE" "SAYS" "USES;LINKS" ${ARGN})
  if(ARG_UNPARSED_ARGUMENTS OR NOT ARG_SAYS)
    message(FATAL_ERROR "ddprun_room(${room}): expected SAYS, USES, LINKS or PURE, found '${ARG_UNPARSED_ARGUMENTS}'")
  endif()
  string(REPLACE "/" "_" target ${room})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${room}/*.cpp)
  # One object file per room in builds that join files: the compiler then reads its headers once.
  if(sources)
    add_library(${target} STATIC ${sources})
    set(scope PUBLIC)
    set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX UNITY_BUILD_BATCH_SIZE 12)
    # GCC 12 sees overlaps that aren't there in "text" + std::string (GCC bug 105651).
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_link_libraries(${target} ${scope} ddprun_options ${ARG_LINKS})
  foreach(used ${ARG_USES})
    string(REPLACE "/" "_" used_target ${used})
    # Rooms are defined in the order of their dependencies: a room can only use rooms defined before it, so there are no cycles.
    if(NOT TARGET ${used_target})
      message(FATAL_ERROR "the room ${room} uses ${used}, which is not defined before it: arrows run one way")
    endif()
    target_link_libraries(${target} ${scope} ${used_target})
  endforeach()
  set_property(GLOBAL APPEND PROPERTY DDPRUN_ROOMS ${room})
  set_property(GLOBAL PROPERTY DDPRUN_ROOM_${room}_USES "${ARG_USES}")
  set_property(GLOBAL PROPERTY DDPRUN_ROOM_${room}_SAYS "${ARG_SAYS}")
  set_property(GLOBAL PROPERTY DDPRUN_ROOM_${room}_PURE ${ARG_PURE})
  if(ARG_PURE)
    set_property(GLOBAL APPEND PROPERTY DDPRUN_PURE_ROOMS ${target})
  endif()
endfunction()

# ddprun_rooms_of(common): the library ddprun_common, which contains all rooms of that folder.
function(ddprun_rooms_of folder)
  get_property(rooms GLOBAL PROPERTY DDPRUN_ROOMS)
  add_library(ddprun_${folder} INTERFACE)
  foreach(room ${rooms})
    if(room MATCHES "^${folder}/")
      string(REPLACE "/" "_" target ${room})
      target_link_libraries(ddprun_${folder} INTERFACE ${target})
    endif()
  endforeach()
endfunction()

# ddprun_way_of_a_job(room...): the rooms through which a job passes, in this order; for docs/internals/rooms.md.
function(ddprun_way_of_a_job)
  get_property(rooms GLOBAL PROPERTY DDPRUN_ROOMS)
  foreach(room ${ARGN})
    if(NOT room IN_LIST rooms)
      message(FATAL_ERROR "ddprun_way_of_a_job: there is no room ${room}")
    endif()
  endforeach()
  set_property(GLOBAL PROPERTY DDPRUN_WAY "${ARGN}")
endfunction()

# Call after the last room: writes the declarations to rooms.txt in the build folder, and adds the check to the build.
function(ddprun_check_rooms)
  get_property(rooms GLOBAL PROPERTY DDPRUN_ROOMS)
  set(text "")
  set(files)
  foreach(room ${rooms})
    foreach(field USES SAYS PURE)
      get_property(${field} GLOBAL PROPERTY DDPRUN_ROOM_${room}_${field})
    endforeach()
    string(APPEND text "${room}|${USES}|${PURE}|${SAYS}\n")
    file(GLOB found CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${room}/*.cpp ${PROJECT_SOURCE_DIR}/${room}/*.hpp)
    list(APPEND files ${found})
  endforeach()
  get_property(way GLOBAL PROPERTY DDPRUN_WAY)
  string(APPEND text "way|${way}||\n")
  string(REPLACE ";" " " text "${text}")
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/rooms.txt CONTENT "${text}" @ONLY)
  add_custom_command(
    OUTPUT ${CMAKE_BINARY_DIR}/rooms.checked
    COMMAND ${CMAKE_COMMAND} -DROOMS=${CMAKE_BINARY_DIR}/rooms.txt -DSOURCES=${PROJECT_SOURCE_DIR} -P
            ${PROJECT_SOURCE_DIR}/cmake/CheckRooms.cmake
    COMMAND ${CMAKE_COMMAND} -E touch ${CMAKE_BINARY_DIR}/rooms.checked
    DEPENDS ${CMAKE_BINARY_DIR}/rooms.txt ${PROJECT_SOURCE_DIR}/cmake/CheckRooms.cmake ${files}
    COMMENT "Checking what rooms include")
  set(checks ${CMAKE_BINARY_DIR}/rooms.checked)
  # A sanitizer's calls would be among the symbols, and another C++ library's symbols have other names. An ordinary build need
  # not fail because its C library has other names.
  if(DDPRUN_WARNINGS_AS_ERRORS AND NOT DDPRUN_SANITIZE AND NOT CMAKE_CROSSCOMPILING AND NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
    get_property(pure GLOBAL PROPERTY DDPRUN_PURE_ROOMS)
    list(TRANSFORM pure REPLACE "(.+)" "$<TARGET_FILE:\\1>" OUTPUT_VARIABLE archives)
    add_custom_command(
      OUTPUT ${CMAKE_BINARY_DIR}/pure_rooms.o
      COMMAND ${CMAKE_COMMAND} -DLINKER=${CMAKE_LINKER} -DNM=${CMAKE_NM} "-DARCHIVES=${archives}"
              -DOBJECT=${CMAKE_BINARY_DIR}/pure_rooms.o -P ${PROJECT_SOURCE_DIR}/cmake/CheckPurity.cmake
      DEPENDS ${PROJECT_SOURCE_DIR}/cmake/CheckPurity.cmake ${pure}
      COMMENT "Linking the pure rooms by themselves"
      VERBATIM)
    list(APPEND checks ${CMAKE_BINARY_DIR}/pure_rooms.o)
  endif()
  add_custom_target(check_rooms ALL DEPENDS ${checks})
endfunction()
