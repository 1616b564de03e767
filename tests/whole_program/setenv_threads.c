// This library is preloaded into a worker by test_precision.py. It replaces setenv(). When the worker sets
// CUBLAS_WORKSPACE_CONFIG, the library appends the process's number of threads to the file $SETENV_THREADS_TO.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int setenv(const char* name, const char* value, int overwrite) {
  const char* file = getenv("SETENV_THREADS_TO");
  if (file != NULL && strcmp(name, "CUBLAS_WORKSPACE_CONFIG") == 0) {
    int threads = 0;
    DIR* tasks = opendir("/proc/self/task");
    for (struct dirent* task = readdir(tasks); task != NULL; task = readdir(tasks)) threads += task->d_name[0] != '.';
    closedir(tasks);
    FILE* out = fopen(file, "a");
    fprintf(out, "%d\n", threads);
    fclose(out);
  }
  int (*real)(const char*, const char*, int) = (int (*)(const char*, const char*, int))dlsym(RTLD_NEXT, "setenv");
  return real(name, value, overwrite);
}
