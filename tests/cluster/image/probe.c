/* The one program of the image that the tests' containers run, under several names.
 *
 * As `pause` it waits until it is told to end; as `sleep`, and as `sh -c "sleep N"`, it sleeps; as
 * `probe` it does one verb after the other and prints what it finds, a line each:
 *
 *     env              every variable              env NAME=value
 *     mounts           every mount point           mount POINT ro|rw
 *     read PATH        a text file                 read PATH: line, or the error
 *     bytes PATH       a file's size, first bytes  bytes PATH: SIZE HEX
 *     write PATH       opened for writing          write PATH: ok, or the error
 *     list PATH        names in a folder           list PATH: name
 *     fork N           N children that sleep       fork PID
 *     say WORD         a word of the test's        say WORD
 *     sleep N          until N seconds are over, or SIGTERM
 *     linger N         the same, deaf to SIGTERM
 *     exit N           the last one
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void end(int number) { _exit(number == SIGTERM ? 0 : 1); }

static void rest(unsigned seconds) {
  while (seconds) seconds = sleep(seconds);
}

static void show_variables(void) {
  for (char **item = environ; *item; item++) printf("env %s\n", *item);
}

static void show_mounts(void) {
  char line[4096], point[2048], options[1024];
  FILE *file = fopen("/proc/self/mountinfo", "r");
  if (!file) return;
  while (fgets(line, sizeof line, file))
    if (sscanf(line, "%*s %*s %*s %*s %2047s %1023s", point, options) == 2)
      printf("mount %s %.2s\n", point, options);
  fclose(file);
}

static void show_text(const char *path) {
  char line[4096];
  FILE *file = fopen(path, "r");
  if (!file) {
    printf("read %s: %s\n", path, strerror(errno));
    return;
  }
  while (fgets(line, sizeof line, file)) {
    line[strcspn(line, "\n")] = 0;
    printf("read %s: %s\n", path, line);
  }
  fclose(file);
}

static void show_bytes(const char *path) {
  struct stat found;
  unsigned char first[16];
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0 || fstat(file, &found)) {
    printf("bytes %s: %s\n", path, strerror(errno));
    return;
  }
  printf("bytes %s: %lld ", path, (long long)found.st_size);
  ssize_t count = read(file, first, sizeof first);
  for (ssize_t at = 0; at < count; at++) printf("%02x", first[at]);
  printf("\n");
  close(file);
}

static void try_to_write(const char *path) {
  int file = open(path, O_WRONLY | O_CLOEXEC);
  printf("write %s: %s\n", path, file < 0 ? strerror(errno) : "ok");
  if (file >= 0) close(file);
}

static void show_names(const char *path) {
  DIR *folder = opendir(path);
  if (!folder) {
    printf("list %s: %s\n", path, strerror(errno));
    return;
  }
  for (struct dirent *entry; (entry = readdir(folder));)
    if (entry->d_name[0] != '.') printf("list %s: %s\n", path, entry->d_name);
  closedir(folder);
}

static void have_children(int count) {
  while (count-- > 0) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
      rest(1000000);
      _exit(0);
    }
    printf("fork %d\n", (int)child);
  }
}

/* Return how many arguments the verb took, 0 if there is no such verb. */
static int act(const char *verb, const char *argument) {
  if (!strcmp(verb, "env")) return show_variables(), 1;
  if (!strcmp(verb, "mounts")) return show_mounts(), 1;
  if (!argument) return 0;
  if (!strcmp(verb, "read")) show_text(argument);
  else if (!strcmp(verb, "bytes")) show_bytes(argument);
  else if (!strcmp(verb, "write")) try_to_write(argument);
  else if (!strcmp(verb, "list")) show_names(argument);
  else if (!strcmp(verb, "fork")) have_children(atoi(argument));
  else if (!strcmp(verb, "say")) printf("say %s\n", argument);
  else if (!strcmp(verb, "sleep")) rest(atoi(argument));
  else if (!strcmp(verb, "linger")) signal(SIGTERM, SIG_IGN), rest(atoi(argument));
  else if (!strcmp(verb, "exit")) exit(atoi(argument));
  else return 0;
  return 2;
}

int main(int count, char **words) {
  const char *slash = strrchr(words[0], '/'), *name = slash ? slash + 1 : words[0];
  setvbuf(stdout, NULL, _IOLBF, 0);
  signal(SIGTERM, end);
  if (!strcmp(name, "pause"))
    for (;;) {
      pause();
      while (waitpid(-1, NULL, WNOHANG) > 0) continue;
    }
  if (!strcmp(name, "sleep")) return rest(count > 1 ? atoi(words[1]) : 0), 0;
  if (!strcmp(name, "sh") || !strcmp(name, "bash")) {
    unsigned seconds;
    if (count < 3 || sscanf(words[2], "sleep %u", &seconds) != 1) return 127;
    return rest(seconds), 0;
  }
  for (int at = 1, taken; at < count; at += taken)
    if (!(taken = act(words[at], at + 1 < count ? words[at + 1] : NULL))) {
      fprintf(stderr, "no verb %s, or its argument is missing\n", words[at]);
      return 64;
    }
  return 0;
}
