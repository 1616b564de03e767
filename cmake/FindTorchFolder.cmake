# Finds LibTorch. LibTorch.cmake includes this file at configure time, and ./dev runs it with `cmake -P`, so both use the same
# result. The first folder with a suitable version of LibTorch is chosen: $LIBTORCH, CMAKE_PREFIX_PATH, the torch of the python3
# on PATH (found without importing it), the project's own environment .env. If LIBTORCH is set but not suitable, this is an
# error, and the other folders are not tried.
set(DDPRUN_TORCH_AT_LEAST 2.11)

# Sets `result` to the version in the headers, or to "" if `folder` does not contain LibTorch.
function(ddprun_torch_version folder result)
  set(${result} "" PARENT_SCOPE)
  if(NOT EXISTS ${folder}/include/torch/csrc/api/include/torch/all.h)
    return()
  endif()
  foreach(header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
    if(EXISTS ${folder}/include/${header})
      file(STRINGS ${folder}/include/${header} lines REGEX "^#define TORCH_VERSION_(MAJOR|MINOR|PATCH) [0-9]+")
      string(REGEX REPLACE "#define TORCH_VERSION_[A-Z]+ ([0-9]+)" "\\1" numbers "${lines}")
      list(LENGTH numbers count)
      if(count EQUAL 3)
        list(JOIN numbers "." version)
        set(${result} ${version} PARENT_SCOPE)
        return()
      endif()
    endif()
  endforeach()
endfunction()

# Sets `result` to the folder of the torch package of `python`, or to "" if it has none.
function(ddprun_torch_of_python python result)
  execute_process(
    COMMAND ${python} -c "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
    OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    set(folder "")
  endif()
  set(${result} "${folder}" PARENT_SCOPE)
endfunction()

# Sets `result` to the folder, and `report` to the places that were searched and why each was not suitable.
function(ddprun_find_torch explicit project_root result report)
  set(${result} "" PARENT_SCOPE)
  if(explicit)
    ddprun_torch_version(${explicit} version)
    if(NOT version)
      message(FATAL_ERROR "LIBTORCH=${explicit} is not LibTorch: expected include/torch and lib/libtorch_cpu.so in it. "
                          "Set it to the folder of the torch package or of the unpacked LibTorch archive, or leave LIBTORCH unset.")
    elseif(version VERSION_LESS DDPRUN_TORCH_AT_LEAST)
      message(FATAL_ERROR "LIBTORCH=${explicit} is version ${version}, but ${DDPRUN_TORCH_AT_LEAST} or newer is required.")
    endif()
    set(${result} ${explicit} PARENT_SCOPE)
    return()
  endif()

  set(candidates ${CMAKE_PREFIX_PATH})
  foreach(prefix $ENV{CMAKE_PREFIX_PATH})
    string(REPLACE ":" ";" prefixes "${prefix}")
    list(APPEND candidates ${prefixes})
  endforeach()
  set(folders)
  foreach(prefix ${candidates})
    # The prefix may be torch.utils.cmake_prefix_path, which is <torch>/share/cmake.
    list(APPEND folders ${prefix} ${prefix}/../..)
  endforeach()
  ddprun_torch_of_python(python3 of_python)
  list(APPEND folders ${of_python})
  file(GLOB own ${project_root}/.env/lib/python3*/site-packages/torch)
  if(NOT DDPRUN_IGNORE_OWN_ENVIRONMENT)
    list(APPEND folders ${own})
  endif()

  set(seen "")
  foreach(folder ${folders})
    ddprun_torch_version(${folder} version)
    get_filename_component(folder ${folder} ABSOLUTE)
    if(version AND NOT version VERSION_LESS DDPRUN_TORCH_AT_LEAST AND EXISTS ${folder}/lib/libtorch_cpu.so)
      set(${result} ${folder} PARENT_SCOPE)
      return()
    elseif(version)
      string(APPEND seen "\n  ${folder} is version ${version}")
    endif()
  endforeach()
  set(${report} "${seen}" PARENT_SCOPE)
endfunction()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  # In script mode, prints one line with the version and the folder, or nothing if no folder is suitable.
  get_filename_component(root ${CMAKE_CURRENT_LIST_DIR}/.. ABSOLUTE)
  ddprun_find_torch("$ENV{LIBTORCH}" ${root} folder report)
  if(folder)
    ddprun_torch_version(${folder} version)
    execute_process(COMMAND ${CMAKE_COMMAND} -E echo "${version} ${folder}")
  endif()
endif()
