// Replaces getaddrinfo() by a version that can block, like a name server that does not answer. Numeric addresses are always
// resolved. $SILENT_RESOLVER_NAME contains "NAME=ADDRESS" and defines one additional name. While the file $SILENT_RESOLVER_FILE
// exists, each lookup of a name blocks for up to ten minutes.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int lookup_function(const char*, const char*, const struct addrinfo*, struct addrinfo**);

static int is_number(const char* host) {
  struct in6_addr ignored;
  return inet_pton(AF_INET, host, &ignored) == 1 || inet_pton(AF_INET6, host, &ignored) == 1;
}

int getaddrinfo(const char* host, const char* service, const struct addrinfo* hints, struct addrinfo** found) {
  lookup_function* real = (lookup_function*)dlsym(RTLD_NEXT, "getaddrinfo");
  if (host == NULL || is_number(host)) return real(host, service, hints, found);
  const char* file = getenv("SILENT_RESOLVER_FILE");
  for (int i = 0; file != NULL && access(file, F_OK) == 0 && i < 600; ++i) sleep(1);
  const char* known = getenv("SILENT_RESOLVER_NAME");
  const char* address = known == NULL ? NULL : strchr(known, '=');
  if (address != NULL && strlen(host) == (size_t)(address - known) && strncmp(host, known, strlen(host)) == 0)
    host = address + 1;
  return real(host, service, hints, found);
}
