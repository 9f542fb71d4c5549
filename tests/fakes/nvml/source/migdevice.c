// MIG devices: handles that stand for a compute instance where a GPU is asked for.

#include "machine.h"

EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
  READ(machine);
  struct target at;
  TRY(resolve_device(machine, device, &at));
  REQUIRE(count && at.kind == DEVICE, NVML_ERROR_INVALID_ARGUMENT);
  *count = 0;
  for (uint32_t i = 0; at.gpu->mig_capable && i < at.gpu->profile_count; i++)
    if (at.gpu->profiles[i].slices > *count) *count = at.gpu->profiles[i].slices;
  return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
                                                        nvmlDevice_t *found) {
  READ(machine);
  struct target at;
  TRY(resolve_cut(machine, device, &at));
  REQUIRE(found, NVML_ERROR_INVALID_ARGUMENT);
  for (int i = 0; i < INSTANCES; i++) {
    struct instance *gi = &at.gpu->instances[i];
    for (int c = 0; gi->used && c < COMPUTES; c++) {
      if (!gi->computes[c].used || gi->computes[c].mig_index != index) continue;
      *found = handle_of(MIG_DEVICE, at.index, gi->id, gi->computes[c].id);
      return NVML_SUCCESS;
    }
  }
  return NVML_ERROR_NOT_FOUND;  // indexes keep their holes
}

EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_mig) {
  READ(machine);
  struct target at;
  TRY(resolve_device(machine, device, &at));
  REQUIRE(is_mig, NVML_ERROR_INVALID_ARGUMENT);
  *is_mig = at.kind == MIG_DEVICE;
  return NVML_SUCCESS;
}

static nvmlReturn_t resolve_mig(struct machine *machine, nvmlDevice_t device, const void *out,
                                struct target *at) {
  TRY(resolve(machine, device, at));
  REQUIRE(out && at->kind == MIG_DEVICE, NVML_ERROR_INVALID_ARGUMENT);
  return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id) {
  READ(machine);
  struct target at;
  TRY(resolve_mig(machine, device, id, &at));
  *id = at.instance->id;
  return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id) {
  READ(machine);
  struct target at;
  TRY(resolve_mig(machine, device, id, &at));
  *id = at.compute->id;
  return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device,
                                                                 nvmlDevice_t *parent) {
  READ(machine);
  struct target at;
  TRY(resolve_mig(machine, device, parent, &at));
  *parent = handle_of(DEVICE, at.index, 0, 0);
  return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device,
                                               nvmlDeviceAttributes_t *attributes) {
  READ(machine);
  struct target at;
  TRY(resolve_mig(machine, device, attributes, &at));
  const struct profile *gi = &at.gpu->profiles[at.instance->profile];
  *attributes = (nvmlDeviceAttributes_t){
      .multiprocessorCount = gi->sms * at.compute->slices / gi->slices,
      .sharedCopyEngineCount = gi->copies,
      .sharedDecoderCount = gi->decoders,
      .sharedJpegCount = gi->jpegs,
      .sharedOfaCount = gi->ofas,
      .gpuInstanceSliceCount = gi->slices,
      .computeInstanceSliceCount = at.compute->slices,
      .memorySizeMB = gi->memory,
  };
  return NVML_SUCCESS;
}
