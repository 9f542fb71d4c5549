// Compute instances, and the MIG devices they are.

#include <stdio.h>
#include <string.h>

#include "machine.h"

static const uint32_t SLICES[NVML_COMPUTE_INSTANCE_PROFILE_COUNT] = {1, 2, 3, 4, 7, 8, 6, 1, 7};

// The larger 1-slice compute instance exists on 2g of Hopper and later; an NVLink one nowhere.
static int offered(const struct target *at, uint32_t number) {
  uint32_t whole = at->gpu->profiles[at->instance->profile].slices;
  if (number >= NVML_COMPUTE_INSTANCE_PROFILE_COUNT - 1) return 0;
  if (number == NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE_REV1)
    return whole == 2 && at->gpu->architecture >= NVML_DEVICE_ARCH_HOPPER;
  return SLICES[number] <= whole && (SLICES[number] != 3 || whole != 4);
}

static uint32_t taken(const struct instance *instance) {
  uint32_t mask = 0;
  for (int i = 0; i < COMPUTES; i++) {
    const struct compute *compute = &instance->computes[i];
    if (compute->used) mask |= ((1U << compute->slices) - 1) << compute->start;
  }
  return mask;
}

static int fits(const struct target *at, uint32_t number, uint32_t start) {
  uint32_t mask = ((1U << SLICES[number]) - 1) << start;
  uint32_t whole = at->gpu->profiles[at->instance->profile].slices;
  return start + SLICES[number] <= whole && !(taken(at->instance) & mask);
}

static nvmlReturn_t described(const struct target *at, unsigned int number, unsigned int engine,
                              nvmlComputeInstanceProfileInfo_v2_t *info) {
  const struct profile *gi = &at->gpu->profiles[at->instance->profile];
  REQUIRE(!engine && number < NVML_COMPUTE_INSTANCE_PROFILE_COUNT, NVML_ERROR_INVALID_ARGUMENT);
  REQUIRE(offered(at, number), NVML_ERROR_NOT_SUPPORTED);
  *info = (nvmlComputeInstanceProfileInfo_v2_t){
      .version = info->version,
      .id = number,
      .sliceCount = SLICES[number],
      .instanceCount = gi->slices / SLICES[number],
      .multiprocessorCount = gi->sms * SLICES[number] / gi->slices,
      .sharedCopyEngineCount = gi->copies,
      .sharedDecoderCount = gi->decoders,
      .sharedJpegCount = gi->jpegs,
      .sharedOfaCount = gi->ofas,
  };
  if (SLICES[number] == gi->slices) return copied(info->name, sizeof info->name, gi->name);
  snprintf(info->name, sizeof info->name, "%uc.%.80s", SLICES[number], gi->name);
  return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(
    nvmlGpuInstance_t handle, unsigned int number, unsigned int engine,
    nvmlComputeInstanceProfileInfo_v2_t *info) {
  READ(machine);
  struct target at;
  TRY(resolve_instance(machine, handle, &at));
  REQUIRE(info, NVML_ERROR_INVALID_ARGUMENT);
  REQUIRE(info->version == NVML_STRUCT_VERSION(nvmlComputeInstanceProfileInfo_v2_t, 2),
          NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  return described(&at, number, engine, info);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(
    nvmlGpuInstance_t handle, unsigned int number, unsigned int engine,
    nvmlComputeInstanceProfileInfo_t *info) {
  READ(machine);
  struct target at;
  nvmlComputeInstanceProfileInfo_v2_t whole = {0};
  REQUIRE(info, NVML_ERROR_INVALID_ARGUMENT);
  TRY(resolve_instance(machine, handle, &at));
  TRY(described(&at, number, engine, &whole));
  *info = (nvmlComputeInstanceProfileInfo_t){
      whole.id,
      whole.sliceCount,
      whole.instanceCount,
      whole.multiprocessorCount,
      whole.sharedCopyEngineCount,
      whole.sharedDecoderCount,
      whole.sharedEncoderCount,
      whole.sharedJpegCount,
      whole.sharedOfaCount,
  };
  return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nvmlGpuInstance_t handle,
                                                                       unsigned int id,
                                                                       unsigned int *count) {
  READ(machine);
  struct target at;
  TRY(resolve_instance(machine, handle, &at));
  REQUIRE(count && offered(&at, id), NVML_ERROR_INVALID_ARGUMENT);
  *count = 0;
  for (uint32_t start = 0; start < 8; start += SLICES[id]) *count += fits(&at, id, start);
  return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstancePossiblePlacements(
    nvmlGpuInstance_t handle, unsigned int id, nvmlComputeInstancePlacement_t *places,
    unsigned int *count) {
  READ(machine);
  struct target at;
  TRY(resolve_instance(machine, handle, &at));
  REQUIRE(count && offered(&at, id), NVML_ERROR_INVALID_ARGUMENT);
  unsigned int all = at.gpu->profiles[at.instance->profile].slices / SLICES[id];
  unsigned int room = places ? *count : all;
  *count = all;
  REQUIRE(room >= all, NVML_ERROR_INSUFFICIENT_SIZE);
  for (unsigned int i = 0; places && i < all; i++)
    places[i] = (nvmlComputeInstancePlacement_t){i * SLICES[id], SLICES[id]};
  return NVML_SUCCESS;
}

static uint64_t mixed(uint64_t hash, const char *text) {
  for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 0x100000001B3ULL;
  return hash;
}

// Name an instance by when it was made, so that none ever has the UUID of another.
static void name(char *uuid, size_t length, const struct machine *machine, const char *gpu) {
  char seed[192];
  snprintf(seed, sizeof seed, "%s/%s/%u", machine->boot, gpu, machine->births);
  uint64_t high = mixed(0xCBF29CE484222325ULL, seed);
  uint64_t low = mixed(high, gpu);
  snprintf(uuid, length, "MIG-%08x-%04x-%04x-%04x-%012llx", (uint32_t)(high >> 32),
           (uint32_t)(high >> 16 & 0xFFFF), (uint32_t)(high & 0xFFFF), (uint32_t)(low >> 48),
           (unsigned long long)(low & 0xFFFFFFFFFFFFULL));
}

static uint32_t free_index(const struct gpu *gpu) {
  uint32_t used = 0;
  for (int i = 0; i < INSTANCES; i++)
    for (int c = 0; gpu->instances[i].used && c < COMPUTES; c++)
      if (gpu->instances[i].computes[c].used)
        used |= 1U << gpu->instances[i].computes[c].mig_index;
  return (uint32_t)__builtin_ctz(~used);
}

static nvmlReturn_t create(struct machine *machine, struct target *at, uint32_t number,
                           uint32_t start, nvmlComputeInstance_t *made) {
  REQUIRE(fits(at, number, start), NVML_ERROR_INSUFFICIENT_RESOURCES);
  for (uint32_t i = 0; i < COMPUTES; i++) {
    struct compute *compute = &at->instance->computes[i];
    if (compute->used) continue;
    *compute = (struct compute){.used = 1,
                                .id = i,
                                .number = number,
                                .start = start,
                                .slices = SLICES[number],
                                .mig_index = free_index(at->gpu)};
    name(compute->uuid, sizeof compute->uuid, machine, at->gpu->uuid);
    machine->births++;
    *made = handle_of(COMPUTE_INSTANCE, at->index, at->instance->id, i);
    return NVML_SUCCESS;
  }
  return NVML_ERROR_INSUFFICIENT_RESOURCES;
}

EXPORT nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t handle, unsigned int id,
                                                         nvmlComputeInstance_t *made) {
  WRITE(machine);
  struct target at;
  TRY(resolve_instance(machine, handle, &at));
  REQUIRE(!machine->no_config, NVML_ERROR_NO_PERMISSION);
  REQUIRE(made && offered(&at, id), NVML_ERROR_INVALID_ARGUMENT);
  for (uint32_t start = 0; start < 8; start += SLICES[id])
    if (!create(machine, &at, id, start, made)) return COMMIT();
  return NVML_ERROR_INSUFFICIENT_RESOURCES;
}

EXPORT nvmlReturn_t nvmlGpuInstanceCreateComputeInstanceWithPlacement(
    nvmlGpuInstance_t handle, unsigned int id, const nvmlComputeInstancePlacement_t *place,
    nvmlComputeInstance_t *made) {
  WRITE(machine);
  struct target at;
  TRY(resolve_instance(machine, handle, &at));
  REQUIRE(!machine->no_config, NVML_ERROR_NO_PERMISSION);
  REQUIRE(made && place && offered(&at, id), NVML_ERROR_INVALID_ARGUMENT);
  REQUIRE(place->size == SLICES[id] && place->start < 8, NVML_ERROR_INVALID_ARGUMENT);
  TRY(create(machine, &at, id, place->start, made));
  return COMMIT();
}

EXPORT nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t handle) {
  WRITE(machine);
  struct target at;
  TRY(resolve_compute(machine, handle, &at));
  REQUIRE(!machine->no_config, NVML_ERROR_NO_PERMISSION);
  for (int i = 0; i < PROCESSES; i++) {
    const struct process *process = &machine->processes[i];
    if (process->used && process->gpu == at.index && process->gi == at.instance->id &&
        process->ci == at.compute->id)
      return NVML_ERROR_IN_USE;
  }
  at.compute->used = 0;
  return COMMIT();
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t handle, unsigned int id,
                                                       nvmlComputeInstance_t *computes,
                                                       unsigned int *count) {
  READ(machine);
  struct target at;
  TRY(resolve_instance(machine, handle, &at));
  REQUIRE(!machine->no_monitor, NVML_ERROR_NO_PERMISSION);
  REQUIRE(computes && count && offered(&at, id), NVML_ERROR_INVALID_ARGUMENT);
  *count = 0;
  for (int i = 0; i < COMPUTES; i++) {
    const struct compute *compute = &at.instance->computes[i];
    if (compute->used && compute->number == id)
      computes[(*count)++] = handle_of(COMPUTE_INSTANCE, at.index, at.instance->id, compute->id);
  }
  return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t handle,
                                                          unsigned int id,
                                                          nvmlComputeInstance_t *compute) {
  READ(machine);
  struct target at;
  TRY(resolve_instance(machine, handle, &at));
  REQUIRE(compute, NVML_ERROR_INVALID_ARGUMENT);
  REQUIRE(compute_of(at.instance, id), NVML_ERROR_NOT_FOUND);
  *compute = handle_of(COMPUTE_INSTANCE, at.index, at.instance->id, id);
  return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t handle,
                                                  nvmlComputeInstanceInfo_t *info) {
  READ(machine);
  struct target at;
  TRY(resolve_compute(machine, handle, &at));
  REQUIRE(info, NVML_ERROR_INVALID_ARGUMENT);
  *info = (nvmlComputeInstanceInfo_t){
      .device = handle_of(MIG_DEVICE, at.index, at.instance->id, at.compute->id),
      .gpuInstance = handle_of(GPU_INSTANCE, at.index, at.instance->id, 0),
      .id = at.compute->id,
      .profileId = at.compute->number,
      .placement = {at.compute->start, at.compute->slices},
  };
  return NVML_SUCCESS;
}
