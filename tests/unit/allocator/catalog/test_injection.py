"""Flat annotations: what the variables of containers read."""

import pytest

from allocator.catalog.injection import is_flat, key_in, key_path

HOSTILE = (
    "",
    "vgpu-admission.io/",
    "vgpu-admission.io/asked",
    "vgpu-admission.io/c0",
    "vgpu-admission.io/c.visible",
    "vgpu-admission.io/x0.visible",
    "vgpu-admission.io/c-1.visible",
    "vgpu-admission.io/c1x.visible",
    "vgpu-admission.io/c\u0661.visible",
    "vgpu-admission.io/C0.visible",
    "example.com/c0.visible",
    "vgpu-admission.io.c0.visible",
    " vgpu-admission.io/c0.visible",
)


@pytest.mark.parametrize("key", ["c0", "i0", "c31", "i7"])
def test_annotations_of_containers_are_flat(key: str) -> None:
    """The path of a variable names the same container."""
    assert is_flat(f"vgpu-admission.io/{key}.visible")
    assert key_in(key_path(key, "memory-0")) == key


@pytest.mark.parametrize("annotation", HOSTILE)
def test_other_annotations_are_not(annotation: str) -> None:
    """They may say what a pod asks for."""
    assert not is_flat(annotation)
    assert key_in(f"metadata.annotations['{annotation}']") is None
