// For tests alone: what the compiler made of each structure, to be compared with ctypes.

#include <string.h>

#include "machine.h"

struct place {
  const char *name;
  long at;
};

#define SIZE(type) {#type, sizeof(type)}
#define AT(type, field) {#type "." #field, offsetof(type, field)}

typedef struct profile profile;
typedef struct compute compute;
typedef struct instance instance;
typedef struct gpu gpu;
typedef struct process process;
typedef struct event event;
typedef struct machine machine;
typedef struct fault fault;
typedef struct shared shared;

static const struct place PLACES_[] = {
    SIZE(nvmlPciInfo_t), AT(nvmlPciInfo_t, pciDeviceId), AT(nvmlPciInfo_t, busId),
    SIZE(nvmlMemory_t), AT(nvmlMemory_t, free), AT(nvmlMemory_t, used),
    SIZE(nvmlMemory_v2_t), AT(nvmlMemory_v2_t, total), AT(nvmlMemory_v2_t, reserved),
    AT(nvmlMemory_v2_t, free), AT(nvmlMemory_v2_t, used),
    SIZE(nvmlUtilization_t),
    SIZE(nvmlProcessInfo_t), AT(nvmlProcessInfo_t, usedGpuMemory),
    AT(nvmlProcessInfo_t, gpuInstanceId), AT(nvmlProcessInfo_t, computeInstanceId),
    SIZE(nvmlProcessUtilizationSample_t), AT(nvmlProcessUtilizationSample_t, timeStamp),
    AT(nvmlProcessUtilizationSample_t, smUtil),
    SIZE(nvmlProcessUtilizationInfo_v1_t), AT(nvmlProcessUtilizationInfo_v1_t, smUtil),
    SIZE(nvmlProcessesUtilizationInfo_v1_t), AT(nvmlProcessesUtilizationInfo_v1_t, procUtilArray),
    SIZE(nvmlEventData_t), AT(nvmlEventData_t, eventData), AT(nvmlEventData_t, gpuInstanceId),
    SIZE(nvmlFieldValue_t), AT(nvmlFieldValue_t, nvmlReturn), AT(nvmlFieldValue_t, value),
    SIZE(nvmlDeviceAttributes_t), AT(nvmlDeviceAttributes_t, gpuInstanceSliceCount),
    AT(nvmlDeviceAttributes_t, memorySizeMB),
    SIZE(nvmlGpuInstancePlacement_t),
    SIZE(nvmlGpuInstanceProfileInfo_t), AT(nvmlGpuInstanceProfileInfo_t, memorySizeMB),
    SIZE(nvmlGpuInstanceProfileInfo_v2_t), AT(nvmlGpuInstanceProfileInfo_v2_t, id),
    AT(nvmlGpuInstanceProfileInfo_v2_t, instanceCount),
    AT(nvmlGpuInstanceProfileInfo_v2_t, memorySizeMB), AT(nvmlGpuInstanceProfileInfo_v2_t, name),
    SIZE(nvmlGpuInstanceInfo_t), AT(nvmlGpuInstanceInfo_t, profileId),
    AT(nvmlGpuInstanceInfo_t, placement),
    SIZE(nvmlComputeInstanceProfileInfo_t),
    SIZE(nvmlComputeInstanceProfileInfo_v2_t), AT(nvmlComputeInstanceProfileInfo_v2_t, sliceCount),
    AT(nvmlComputeInstanceProfileInfo_v2_t, name),
    SIZE(nvmlComputeInstanceInfo_t), AT(nvmlComputeInstanceInfo_t, profileId),
    AT(nvmlComputeInstanceInfo_t, placement),
    SIZE(profile), AT(profile, number), AT(profile, preferred),
    SIZE(compute), AT(compute, mig_index),
    SIZE(instance), AT(instance, leaked), AT(instance, computes),
    SIZE(gpu), AT(gpu, memory), AT(gpu, numa), AT(gpu, mig_capable), AT(gpu, profiles),
    AT(gpu, instances),
    SIZE(process), AT(process, gi), AT(process, type),
    SIZE(event), AT(event, gpu),
    SIZE(machine), AT(machine, gpu_count), AT(machine, births), AT(machine, gpus),
    AT(machine, processes), AT(machine, events),
    SIZE(fault), AT(fault, nth),
    SIZE(shared), AT(shared, faults), AT(shared, copies),
};

// Return the size of a structure, or the offset of "structure.field"; -1 for what is not listed.
EXPORT long fakeLayout(const char *name) {
  for (size_t i = 0; i < sizeof PLACES_ / sizeof *PLACES_; i++)
    if (!strcmp(PLACES_[i].name, name)) return PLACES_[i].at;
  return -1;
}

// Return the names that the function above answers for, one by one; NULL past the last.
EXPORT const char *fakeLayoutName(unsigned int index) {
  return index < sizeof PLACES_ / sizeof *PLACES_ ? PLACES_[index].name : NULL;
}
