// MIG mode, and GPU instances: what may be cut out of a GPU, and what is.

#include <stdio.h>
#include <string.h>

#include "machine.h"

static int busy(const struct machine *machine, uint32_t gpu) {
  for (int i = 0; i < PROCESSES; i++)
    if (machine->processes[i].used && machine->processes[i].gpu == gpu) return 1;
  return 0;
}

static int is_cut(const struct gpu *gpu) {
  for (int i = 0; i < INSTANCES; i++)
    if (gpu->instances[i].used) return 1;
  return 0;
}

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current,
                                         unsigned int *pending) {
  READ(machine);
  struct target at;
  TRY(resolve_cut(machine, device, &at));
  REQUIRE(current && pending, NVML_ERROR_INVALID_ARGUMENT);
  *current = at.gpu->mig_current;
  *pending = at.gpu->mig_pending;
  return NVML_SUCCESS;
}

// The call itself succeeds; whether the mode is there says the status, and only that.
EXPORT nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned int mode,
                                         nvmlReturn_t *status) {
  WRITE(machine);
  struct target at;
  TRY(resolve_cut(machine, device, &at));
  REQUIRE(status && mode <= 1, NVML_ERROR_INVALID_ARGUMENT);
  REQUIRE(!machine->no_config, NVML_ERROR_NO_PERMISSION);
  int resets = at.gpu->architecture < NVML_DEVICE_ARCH_HOPPER;
  *status = is_cut(at.gpu) || busy(machine, at.index) ? NVML_ERROR_IN_USE : NVML_SUCCESS;
  if (!*status && resets && at.gpu->guest) *status = NVML_ERROR_RESET_REQUIRED;
  if (!*status) at.gpu->mig_current = mode;
  if (!*status || (resets && !is_cut(at.gpu))) at.gpu->mig_pending = mode;
  return COMMIT();
}

static nvmlReturn_t queried(struct machine *machine, nvmlDevice_t device, struct target *at) {
  TRY(resolve_cut(machine, device, at));
  REQUIRE(!machine->old_driver || at->gpu->mig_current, NVML_ERROR_NOT_SUPPORTED);
  return NVML_SUCCESS;
}

static nvmlReturn_t profile_called(struct gpu *gpu, unsigned int id, uint32_t *position) {
  for (*position = 0; *position < gpu->profile_count; ++*position)
    if (gpu->profiles[*position].id == id) return NVML_SUCCESS;
  return NVML_ERROR_INVALID_ARGUMENT;
}

static nvmlReturn_t profile_numbered(struct gpu *gpu, unsigned int number, uint32_t *position) {
  REQUIRE(number < NVML_GPU_INSTANCE_PROFILE_COUNT, NVML_ERROR_INVALID_ARGUMENT);
  for (*position = 0; *position < gpu->profile_count; ++*position)
    if (gpu->profiles[*position].number == number) return NVML_SUCCESS;
  return NVML_ERROR_NOT_SUPPORTED;
}

static uint32_t most(const struct profile *profile) {
  return profile->limit ? profile->limit : profile->place_count;
}

static nvmlReturn_t described(const struct profile *profile, nvmlGpuInstanceProfileInfo_v2_t *info) {
  REQUIRE(info, NVML_ERROR_INVALID_ARGUMENT);
  unsigned int version = info->version;
  REQUIRE(version == NVML_STRUCT_VERSION(nvmlGpuInstanceProfileInfo_v2_t, 2) ||
              version == NVML_STRUCT_VERSION(nvmlGpuInstanceProfileInfo_v2_t, 3),
          NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  *info = (nvmlGpuInstanceProfileInfo_v2_t){
      .version = version,
      .id = profile->id,
      .sliceCount = profile->slices,
      .instanceCount = most(profile),
      .multiprocessorCount = profile->sms,
      .copyEngineCount = profile->copies,
      .decoderCount = profile->decoders,
      .jpegCount = profile->jpegs,
      .ofaCount = profile->ofas,
      .memorySizeMB = profile->memory,
  };
  return copied(info->name, sizeof info->name, profile->name);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned int number,
                                                         nvmlGpuInstanceProfileInfo_v2_t *info) {
  READ(machine);
  struct target at;
  uint32_t position;
  TRY(queried(machine, device, &at));
  TRY(profile_numbered(at.gpu, number, &position));
  return described(&at.gpu->profiles[position], info);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoByIdV(
    nvmlDevice_t device, unsigned int id, nvmlGpuInstanceProfileInfo_v2_t *info) {
  READ(machine);
  struct target at;
  uint32_t position;
  TRY(queried(machine, device, &at));
  TRY(profile_called(at.gpu, id, &position));
  return described(&at.gpu->profiles[position], info);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int number,
                                                        nvmlGpuInstanceProfileInfo_t *info) {
  READ(machine);
  struct target at;
  uint32_t position;
  nvmlGpuInstanceProfileInfo_v2_t whole = {
      .version = NVML_STRUCT_VERSION(nvmlGpuInstanceProfileInfo_v2_t, 2)};
  REQUIRE(info, NVML_ERROR_INVALID_ARGUMENT);
  TRY(queried(machine, device, &at));
  TRY(profile_numbered(at.gpu, number, &position));
  TRY(described(&at.gpu->profiles[position], &whole));
  *info = (nvmlGpuInstanceProfileInfo_t){
      whole.id,           whole.isP2pSupported, whole.sliceCount,   whole.instanceCount,
      whole.multiprocessorCount, whole.copyEngineCount, whole.decoderCount, whole.encoderCount,
      whole.jpegCount,    whole.ofaCount,       whole.memorySizeMB,
  };
  return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(
    nvmlDevice_t device, unsigned int id, nvmlGpuInstancePlacement_t *places,
    unsigned int *count) {
  READ(machine);
  struct target at;
  uint32_t position;
  TRY(queried(machine, device, &at));
  REQUIRE(!machine->no_config, NVML_ERROR_NO_PERMISSION);
  REQUIRE(count, NVML_ERROR_INVALID_ARGUMENT);
  TRY(profile_called(at.gpu, id, &position));
  const struct profile *profile = &at.gpu->profiles[position];
  unsigned int room = places ? *count : profile->place_count;
  *count = profile->place_count;
  REQUIRE(room >= profile->place_count, NVML_ERROR_INSUFFICIENT_SIZE);
  for (uint32_t i = 0; places && i < profile->place_count; i++)
    places[i] = (nvmlGpuInstancePlacement_t){profile->places[i], profile->size};
  return NVML_SUCCESS;
}

static int overlaps(const struct gpu *gpu, uint32_t start, uint32_t size) {
  for (int i = 0; i < INSTANCES; i++) {
    const struct instance *other = &gpu->instances[i];
    uint32_t other_size = gpu->profiles[other->profile].size;
    if (other->used && start < other->start + other_size && other->start < start + size) return 1;
  }
  return 0;
}

// Media engines: +me.all takes them all, so that only -me, which needs none, fits beside it.
static int exhausted(const struct gpu *gpu, uint32_t position) {
  const struct profile *wanted = &gpu->profiles[position];
  uint32_t alike = 0;
  for (int i = 0; i < INSTANCES; i++) {
    if (!gpu->instances[i].used) continue;
    const struct profile *other = &gpu->profiles[gpu->instances[i].profile];
    alike += gpu->instances[i].profile == position;
    if (wanted->media == MEDIA_NONE || other->media == MEDIA_NONE) continue;
    if (wanted->media == MEDIA_ALL || other->media == MEDIA_ALL) return 1;
  }
  return wanted->limit && alike >= wanted->limit;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device,
                                                              unsigned int id,
                                                              unsigned int *count) {
  READ(machine);
  struct target at;
  uint32_t position, next = 0;
  TRY(queried(machine, device, &at));
  REQUIRE(count, NVML_ERROR_INVALID_ARGUMENT);
  TRY(profile_called(at.gpu, id, &position));
  const struct profile *profile = &at.gpu->profiles[position];
  *count = 0;
  for (uint32_t i = 0; i < profile->place_count && !exhausted(at.gpu, position); i++) {
    if (profile->places[i] < next || overlaps(at.gpu, profile->places[i], profile->size)) continue;
    next = profile->places[i] + profile->size;
    if (*count < most(profile)) ++*count;
  }
  return NVML_SUCCESS;
}

// A place's node in the binary tree over the memory: the whole is 0, its halves 1 and 2.
static uint32_t id_of(struct gpu *gpu, const struct profile *profile, uint32_t start) {
  uint32_t first = 0;
  for (uint32_t ratio = gpu->slots / profile->size; ratio > 1; ratio /= 2) first = 2 * first + 1;
  uint32_t id = first + start / profile->size;
  while (instance_of(gpu, id)) id++;  // an odd board, whose places are no tree
  return id;
}

static nvmlReturn_t create(struct target *at, uint32_t position, uint32_t start,
                           nvmlGpuInstance_t *made) {
  struct gpu *gpu = at->gpu;
  REQUIRE(!overlaps(gpu, start, gpu->profiles[position].size) && !exhausted(gpu, position),
          NVML_ERROR_INSUFFICIENT_RESOURCES);
  for (int i = 0; i < INSTANCES; i++) {
    if (gpu->instances[i].used) continue;
    uint32_t id = id_of(gpu, &gpu->profiles[position], start);
    gpu->instances[i] =
        (struct instance){.used = 1, .id = id, .profile = position, .start = start};
    *made = handle_of(GPU_INSTANCE, at->index, id, 0);
    return NVML_SUCCESS;
  }
  return NVML_ERROR_INSUFFICIENT_RESOURCES;
}

static nvmlReturn_t create_anywhere(struct target *at, uint32_t position, nvmlGpuInstance_t *made) {
  const struct profile *profile = &at->gpu->profiles[position];
  for (uint32_t i = 0; i < profile->place_count; i++)
    if (!create(at, position, profile->preferred[i], made)) return NVML_SUCCESS;
  return NVML_ERROR_INSUFFICIENT_RESOURCES;
}

static nvmlReturn_t allowed(struct machine *machine, nvmlDevice_t device, const void *made,
                            struct target *at) {
  TRY(resolve_cut(machine, device, at));
  REQUIRE(at->gpu->mig_current, NVML_ERROR_NOT_SUPPORTED);
  REQUIRE(!machine->no_config, NVML_ERROR_NO_PERMISSION);
  REQUIRE(made, NVML_ERROR_INVALID_ARGUMENT);
  return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(
    nvmlDevice_t device, unsigned int id, const nvmlGpuInstancePlacement_t *place,
    nvmlGpuInstance_t *made) {
  WRITE(machine);
  struct target at;
  uint32_t position;
  TRY(allowed(machine, device, made, &at));
  TRY(profile_called(at.gpu, id, &position));
  const struct profile *profile = &at.gpu->profiles[position];
  REQUIRE(place && place->size == profile->size, NVML_ERROR_INVALID_ARGUMENT);
  for (uint32_t i = 0; i < profile->place_count; i++) {
    if (profile->places[i] != place->start) continue;
    TRY(machine->misplaces ? create_anywhere(&at, position, made)
                           : create(&at, position, place->start, made));
    return COMMIT();
  }
  return NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned int id,
                                                nvmlGpuInstance_t *made) {
  WRITE(machine);
  struct target at;
  uint32_t position;
  TRY(allowed(machine, device, made, &at));
  TRY(profile_called(at.gpu, id, &position));
  TRY(create_anywhere(&at, position, made));
  return COMMIT();
}

EXPORT nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t handle) {
  WRITE(machine);
  struct target at;
  TRY(resolve_instance(machine, handle, &at));
  REQUIRE(!machine->no_config, NVML_ERROR_NO_PERMISSION);
  REQUIRE(!at.instance->leaked, NVML_ERROR_IN_USE);
  for (int i = 0; i < COMPUTES; i++) REQUIRE(!at.instance->computes[i].used, NVML_ERROR_IN_USE);
  at.instance->used = 0;
  return COMMIT();
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int id,
                                              nvmlGpuInstance_t *instances,
                                              unsigned int *count) {
  READ(machine);
  struct target at;
  uint32_t position;
  TRY(resolve_cut(machine, device, &at));
  REQUIRE(at.gpu->mig_current, NVML_ERROR_NOT_SUPPORTED);
  REQUIRE(!machine->no_monitor, NVML_ERROR_NO_PERMISSION);
  REQUIRE(instances && count, NVML_ERROR_INVALID_ARGUMENT);
  TRY(profile_called(at.gpu, id, &position));
  *count = 0;
  for (int i = 0; i < INSTANCES; i++)
    if (at.gpu->instances[i].used && at.gpu->instances[i].profile == position)
      instances[(*count)++] = handle_of(GPU_INSTANCE, at.index, at.gpu->instances[i].id, 0);
  return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id,
                                                 nvmlGpuInstance_t *instance) {
  READ(machine);
  struct target at;
  TRY(resolve_cut(machine, device, &at));
  REQUIRE(at.gpu->mig_current, NVML_ERROR_NOT_SUPPORTED);
  REQUIRE(!machine->no_monitor, NVML_ERROR_NO_PERMISSION);
  REQUIRE(instance, NVML_ERROR_INVALID_ARGUMENT);
  REQUIRE(instance_of(at.gpu, id), NVML_ERROR_NOT_FOUND);
  *instance = handle_of(GPU_INSTANCE, at.index, id, 0);
  return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t handle, nvmlGpuInstanceInfo_t *info) {
  READ(machine);
  struct target at;
  TRY(resolve_instance(machine, handle, &at));
  REQUIRE(info, NVML_ERROR_INVALID_ARGUMENT);
  const struct profile *profile = &at.gpu->profiles[at.instance->profile];
  *info = (nvmlGpuInstanceInfo_t){
      .device = handle_of(DEVICE, at.index, 0, 0),
      .id = at.instance->id,
      .profileId = profile->id,
      .placement = {at.instance->start, profile->size},
  };
  return NVML_SUCCESS;
}
