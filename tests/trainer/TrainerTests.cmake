# trainer_tests(NAME LIBRARY MODULE...): adds a test program with the tests of these modules. A module that can be linked
# without the other modules of the trainer has a separate program.
function(trainer_tests name library)
  set(sources)
  foreach(module ${ARGN})
    file(GLOB found CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/trainer/${module}/*.cpp)
    list(APPEND sources ${found})
  endforeach()
  if(DDPRUN_SANITIZE)
    # The model checker switches stacks, which the sanitizers do not support.
    list(FILTER sources EXCLUDE REGEX "/flag_model")
  endif()
  add_executable(test_trainer_${name} ${sources})
  target_link_libraries(test_trainer_${name} PRIVATE ${library} test_repository GTest::gtest GTest::gtest_main)
  gtest_discover_tests(test_trainer_${name} DISCOVERY_TIMEOUT 120)
endfunction()
