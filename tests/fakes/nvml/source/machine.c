// How a call gets at the machine: alone among threads and processes, with its faults and latency.

#define _GNU_SOURCE
#include "machine.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t alone = PTHREAD_MUTEX_INITIALIZER;
static struct shared *shared;
static int file = -1;
static int sessions;

static void lock(void) {
  pthread_mutex_lock(&alone);
  while (file >= 0 && flock(file, LOCK_EX) && errno == EINTR) continue;
}

static void unlock(void) {
  if (file >= 0) flock(file, LOCK_UN);
  pthread_mutex_unlock(&alone);
}

static nvmlReturn_t map(void) {
  const char *path = getenv("VGPU_FAKE_NVML");
  if (!path) path = "/run/vgpu-driver/machine";  // in a container whose environment was lost
  struct stat status;
  if ((file = open(path, O_RDWR | O_CLOEXEC)) < 0) return NVML_ERROR_DRIVER_NOT_LOADED;
  if (!fstat(file, &status) && status.st_size == (off_t)sizeof *shared) {
    void *at = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    shared = at == MAP_FAILED ? NULL : at;
  }
  if (shared && shared->magic == MAGIC && shared->size == sizeof *shared) return NVML_SUCCESS;
  if (shared) munmap(shared, sizeof *shared);
  close(file);
  shared = NULL;
  file = -1;
  return NVML_ERROR_DRIVER_NOT_LOADED;
}

nvmlReturn_t machine_open(void) {
  pthread_mutex_lock(&alone);
  nvmlReturn_t result = sessions ? NVML_SUCCESS : map();
  if (!result) sessions++;
  pthread_mutex_unlock(&alone);
  return result;
}

nvmlReturn_t machine_close(void) {
  pthread_mutex_lock(&alone);
  nvmlReturn_t result = sessions ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
  if (sessions && !--sessions) {
    munmap(shared, sizeof *shared);
    close(file);
    shared = NULL;
    file = -1;
  }
  pthread_mutex_unlock(&alone);
  return result;
}

// Return the code that the test wants of this call.
static int faulted(const char *call) {
  int result = NVML_SUCCESS;
  for (int i = 0; i < FAULTS; i++) {
    struct fault *fault = &shared->faults[i];
    if (!fault->used || strcmp(fault->call, call)) continue;
    fault->seen++;
    if (!fault->nth || fault->nth == fault->seen) result = (int)fault->code;
  }
  return result;
}

struct scope machine_enter(const char *call, int writes) {
  struct scope scope = {0};
  lock();
  if (!shared) {
    scope.refused = NVML_ERROR_UNINITIALIZED;
  } else if (shared->copies[shared->active & 1].unloaded) {
    scope.refused = NVML_ERROR_DRIVER_NOT_LOADED;
  } else {
    int code = faulted(call);
    int deadly = code == DIES_BEFORE || code == DIES_AFTER;
    scope.death = deadly ? code : 0;
    scope.refused = deadly ? NVML_SUCCESS : (nvmlReturn_t)code;
  }
  uint32_t latency = shared ? shared->copies[shared->active & 1].latency : 0;
  if (latency) {
    unlock();  // a slow call keeps nobody else from calling
    usleep(latency);
    lock();
  }
  if (!scope.refused && !shared) scope.refused = NVML_ERROR_UNINITIALIZED;
  if (scope.refused) {
    unlock();
    return scope;
  }
  scope.machine = &shared->copies[shared->active & 1];
  if (writes) {
    struct machine *spare = &shared->copies[~shared->active & 1];
    memcpy(spare, scope.machine, sizeof *spare);
    scope.machine = spare;
  }
  return scope;
}

void machine_leave(struct scope *scope) {
  if (!scope->machine) return;  // refused at the door
  if (scope->death == DIES_BEFORE) raise(SIGKILL);
  if (scope->commit) __atomic_store_n(&shared->active, ~shared->active & 1, __ATOMIC_SEQ_CST);
  if (scope->death) raise(SIGKILL);
  unlock();
}

void *handle_of(enum kind kind, uint32_t gpu, uint32_t gi, uint32_t ci) {
  return (void *)((uintptr_t)kind << 24 | (uintptr_t)gpu << 16 | (uintptr_t)gi << 8 | ci);
}

struct instance *instance_of(struct gpu *gpu, uint32_t id) {
  for (int i = 0; i < INSTANCES; i++)
    if (gpu->instances[i].used && gpu->instances[i].id == id) return &gpu->instances[i];
  return NULL;
}

struct compute *compute_of(struct instance *instance, uint32_t id) {
  for (int i = 0; i < COMPUTES; i++)
    if (instance->computes[i].used && instance->computes[i].id == id)
      return &instance->computes[i];
  return NULL;
}

nvmlReturn_t resolve(struct machine *machine, const void *handle, struct target *found) {
  uintptr_t number = (uintptr_t)handle;
  *found = (struct target){.kind = number >> 24, .index = number >> 16 & 0xFF};
  REQUIRE(found->kind >= DEVICE && found->kind <= COMPUTE_INSTANCE, NVML_ERROR_INVALID_ARGUMENT);
  REQUIRE(found->index < machine->gpu_count, NVML_ERROR_INVALID_ARGUMENT);
  found->gpu = &machine->gpus[found->index];
  REQUIRE(!found->gpu->lost, NVML_ERROR_GPU_IS_LOST);
  if (found->kind == DEVICE) return NVML_SUCCESS;
  found->instance = instance_of(found->gpu, number >> 8 & 0xFF);
  REQUIRE(found->instance, NVML_ERROR_NOT_FOUND);
  if (found->kind == GPU_INSTANCE) return NVML_SUCCESS;
  found->compute = compute_of(found->instance, number & 0xFF);
  REQUIRE(found->compute, NVML_ERROR_NOT_FOUND);
  return NVML_SUCCESS;
}

nvmlReturn_t resolve_device(struct machine *machine, nvmlDevice_t handle, struct target *found) {
  TRY(resolve(machine, handle, found));
  REQUIRE(found->kind == DEVICE || found->kind == MIG_DEVICE, NVML_ERROR_INVALID_ARGUMENT);
  return NVML_SUCCESS;
}

// A whole GPU that may be asked about MIG.
nvmlReturn_t resolve_cut(struct machine *machine, nvmlDevice_t handle, struct target *found) {
  TRY(resolve(machine, handle, found));
  REQUIRE(found->kind == DEVICE, NVML_ERROR_INVALID_ARGUMENT);
  REQUIRE(found->gpu->mig_capable, NVML_ERROR_NOT_SUPPORTED);
  return NVML_SUCCESS;
}

nvmlReturn_t resolve_instance(struct machine *machine, const void *handle, struct target *found) {
  TRY(resolve(machine, handle, found));
  REQUIRE(found->kind == GPU_INSTANCE, NVML_ERROR_INVALID_ARGUMENT);
  return NVML_SUCCESS;
}

nvmlReturn_t resolve_compute(struct machine *machine, const void *handle, struct target *found) {
  TRY(resolve(machine, handle, found));
  REQUIRE(found->kind == COMPUTE_INSTANCE, NVML_ERROR_INVALID_ARGUMENT);
  return NVML_SUCCESS;
}

nvmlReturn_t copied(char *to, unsigned int length, const char *from) {
  REQUIRE(to, NVML_ERROR_INVALID_ARGUMENT);
  REQUIRE(strlen(from) < length, NVML_ERROR_INSUFFICIENT_SIZE);
  strcpy(to, from);
  return NVML_SUCCESS;
}
