// Processes, utilization and events.

#define _GNU_SOURCE
#include <stdlib.h>
#include <time.h>

#include "machine.h"

static int belongs(const struct process *process, const struct target *at, uint32_t type) {
  if (!process->used || process->gpu != at->index || process->type != type) return 0;
  return !at->compute || (process->gi == at->instance->id && process->ci == at->compute->id);
}

static nvmlReturn_t listed(struct machine *machine, nvmlDevice_t device, unsigned int *count,
                           nvmlProcessInfo_t *infos, uint32_t type) {
  struct target at;
  unsigned int room, found = 0;
  TRY(resolve_device(machine, device, &at));
  REQUIRE(count, NVML_ERROR_INVALID_ARGUMENT);
  room = infos ? *count : 0;
  for (int i = 0; i < PROCESSES; i++) {
    const struct process *process = &machine->processes[i];
    if (!belongs(process, &at, type)) continue;
    if (found < room)
      infos[found] = (nvmlProcessInfo_t){process->pid, process->memory, process->gi, process->ci};
    found++;
  }
  *count = found;
  return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device,
                                                            unsigned int *count,
                                                            nvmlProcessInfo_t *infos) {
  READ(machine);
  return listed(machine, device, count, infos, COMPUTE_TYPE);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device,
                                                            unsigned int *count,
                                                            nvmlProcessInfo_t *infos) {
  READ(machine);
  return listed(machine, device, count, infos, COMPUTE_TYPE);
}

// The first of its names, which the interception library calls, knows of no instances.
EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *count,
                                                         nvmlProcessInfo_v1_t *infos) {
  READ(machine);
  nvmlProcessInfo_t found[PROCESSES];
  unsigned int room = count && infos ? *count : 0, all = PROCESSES;
  REQUIRE(count, NVML_ERROR_INVALID_ARGUMENT);
  TRY(listed(machine, device, &all, found, COMPUTE_TYPE));
  for (unsigned int i = 0; i < all && i < room; i++)
    infos[i] = (nvmlProcessInfo_v1_t){found[i].pid, found[i].usedGpuMemory};
  *count = all;
  return all > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device,
                                                             unsigned int *count,
                                                             nvmlProcessInfo_t *infos) {
  READ(machine);
  return listed(machine, device, count, infos, GRAPHICS_TYPE);
}

EXPORT nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device,
                                                               unsigned int *count,
                                                               nvmlProcessInfo_t *infos) {
  READ(machine);
  return listed(machine, device, count, infos, MPS_TYPE);
}

// What is measured of a GPU as a whole is not measured in MIG mode.
static nvmlReturn_t uncut(struct machine *machine, nvmlDevice_t device, struct target *at) {
  TRY(resolve_device(machine, device, at));
  REQUIRE(at->kind == DEVICE && !at->gpu->mig_current, NVML_ERROR_NOT_SUPPORTED);
  return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
  READ(machine);
  struct target at;
  unsigned int sum = 0;
  TRY(uncut(machine, device, &at));
  REQUIRE(rates, NVML_ERROR_INVALID_ARGUMENT);
  for (int i = 0; i < PROCESSES; i++)
    if (belongs(&machine->processes[i], &at, machine->processes[i].type))
      sum += machine->processes[i].utilization;
  *rates = (nvmlUtilization_t){sum > 100 ? 100 : sum, 0};
  return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                                    nvmlProcessUtilizationSample_t *samples,
                                                    unsigned int *count,
                                                    unsigned long long since) {
  READ(machine);
  struct target at;
  unsigned int room, found = 0;
  TRY(uncut(machine, device, &at));
  REQUIRE(count, NVML_ERROR_INVALID_ARGUMENT);
  room = samples ? *count : 0;
  for (int i = 0; i < PROCESSES; i++) {
    const struct process *process = &machine->processes[i];
    if (!belongs(process, &at, process->type) || process->seen <= since) continue;
    if (found < room)
      samples[found] = (nvmlProcessUtilizationSample_t){
          .pid = process->pid, .timeStamp = process->seen, .smUtil = process->utilization};
    found++;
  }
  *count = found;
  if (!found) return NVML_ERROR_NOT_FOUND;  // nothing newer was sampled
  return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(
    nvmlDevice_t device, nvmlProcessesUtilizationInfo_v1_t *info) {
  READ(machine);
  struct target at;
  unsigned int room, found = 0;
  TRY(uncut(machine, device, &at));
  REQUIRE(info, NVML_ERROR_INVALID_ARGUMENT);
  REQUIRE(info->version == NVML_STRUCT_VERSION(nvmlProcessesUtilizationInfo_v1_t, 1),
          NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  room = info->procUtilArray ? info->processSamplesCount : 0;
  for (int i = 0; i < PROCESSES; i++) {
    const struct process *process = &machine->processes[i];
    if (!belongs(process, &at, process->type) || process->seen <= info->lastSeenTimeStamp)
      continue;
    if (found < room)
      info->procUtilArray[found] = (nvmlProcessUtilizationInfo_v1_t){
          .timeStamp = process->seen, .pid = process->pid, .smUtil = process->utilization};
    found++;
  }
  info->processSamplesCount = found;
  if (!found) return NVML_ERROR_NOT_FOUND;
  return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned int gi,
                                        nvmlGpmSample_t sample) {
  READ(machine);
  struct target at;
  (void)gi, (void)sample;
  TRY(resolve_device(machine, device, &at));
  return NVML_ERROR_NOT_SUPPORTED;
}

struct nvmlEventSet_st {
  unsigned int seen, gpus;  // gpus is a bit mask of those registered
};

EXPORT nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
  READ(machine);
  REQUIRE(set, NVML_ERROR_INVALID_ARGUMENT);
  *set = calloc(1, sizeof **set);
  REQUIRE(*set, NVML_ERROR_UNKNOWN);
  (*set)->seen = machine->reported;
  return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
  REQUIRE(set, NVML_ERROR_INVALID_ARGUMENT);
  free(set);
  return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device,
                                                     unsigned long long *types) {
  READ(machine);
  struct target at;
  TRY(resolve_device(machine, device, &at));
  REQUIRE(types, NVML_ERROR_INVALID_ARGUMENT);
  *types = NVML_EVENT_XID_CRITICAL_ERROR;
  return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types,
                                             nvmlEventSet_t set) {
  READ(machine);
  struct target at;
  TRY(resolve_device(machine, device, &at));
  REQUIRE(set, NVML_ERROR_INVALID_ARGUMENT);
  REQUIRE(at.kind == DEVICE && !(types & ~(unsigned long long)NVML_EVENT_XID_CRITICAL_ERROR),
          NVML_ERROR_NOT_SUPPORTED);
  if (types) set->gpus |= 1U << at.index;
  return NVML_SUCCESS;
}

static nvmlReturn_t next(const char *call, nvmlEventSet_t set, nvmlEventData_t *data) {
  ENTER(machine, call, 0);
  if (machine->reported - set->seen > EVENTS) set->seen = machine->reported - EVENTS;
  while (set->seen != machine->reported) {
    const struct event *event = &machine->events[set->seen++ % EVENTS];
    int all = event->gpu >= machine->gpu_count;
    if (!all && !(set->gpus & 1U << event->gpu)) continue;
    *data = (nvmlEventData_t){
        .device = all ? NULL : handle_of(DEVICE, event->gpu, 0, 0),
        .eventType = NVML_EVENT_XID_CRITICAL_ERROR,
        .eventData = event->xid,
        .gpuInstanceId = event->gi,
        .computeInstanceId = event->ci,
    };
    return NVML_SUCCESS;
  }
  return NVML_ERROR_TIMEOUT;
}

static long long now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000LL + time.tv_nsec / 1000000;
}

EXPORT nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data,
                                        unsigned int timeout) {
  REQUIRE(set && data, NVML_ERROR_INVALID_ARGUMENT);
  for (long long end = now() + timeout;;) {
    nvmlReturn_t result = next(__func__, set, data);
    if (result != NVML_ERROR_TIMEOUT || now() >= end) return result;
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
}
