# usage: cmake -DPROGRAM=ddprun -DFOLDER=pages -P cmake/WritePages.cmake
#
# Writes the manual page and the completions, in a layout like that of share/. The build runs this script (Install.cmake).
cmake_minimum_required(VERSION 3.25)
function(write file)
  execute_process(COMMAND ${PROGRAM} ${ARGN} OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
  file(WRITE ${FOLDER}/${file} "${text}")
endfunction()
write(man1/ddprun.1 --print-man)
write(bash-completion/completions/ddprun --print-completion bash)
write(zsh/site-functions/_ddprun --print-completion zsh)
write(fish/vendor_completions.d/ddprun.fish --print-completion fish)
